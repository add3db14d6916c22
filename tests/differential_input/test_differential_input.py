"""Drawn cases are served as TFXIO serves them; what once were not is kept in `examples.jsonl`."""

import pathlib

import pytest

from tests.fuzzing import failures
from tests.fuzzing.found import found_once

from .cases import VARIABLE, Call, Case, Feature, File
from .checking import Checker
from .strategies import BASES, cases

pytestmark = pytest.mark.each_choice

_EXAMPLES = pathlib.Path(__file__).with_name("examples.jsonl")
_SEED = 17  # of the few that are drawn every time
_FEW, _MANY = 8, 1000


@pytest.fixture(scope="module")
def checker():
    made = Checker()
    yield made
    made.close()


@pytest.mark.parametrize("example", found_once(_EXAMPLES))
def test_an_example_found_once_is_as_tfxio_serves_it(checker, example):
    assert checker.check(Case.from_json(example)) is None


_FEATURES = (
    Feature(shape=(1,)), Feature(dtype="float", shape=(2,)), Feature(dtype="bytes"),
    Feature(dtype="bytes", kind=VARIABLE), Feature(kind=VARIABLE), Feature("float", VARIABLE),
)  # fmt: skip
_CALLS = {
    "in order": Call(num_epochs=3),
    "endless": Call(num_epochs=None, shuffle=True, label=True),
    "endless in order": Call(num_epochs=None),
    "without the rest": Call(num_epochs=2, drop_final_batch=True, batch_size=16, shuffle=True),
    "over epochs": Call(num_epochs=2, batch_size=16, shuffle=True, label=True),
    "one by one": Call(batch_size=1, shuffle=True),
    "all at once": Call(batch_size=1000, shuffle=True, label=True),
}


@pytest.mark.one_case
@pytest.mark.parametrize("is_ragged", [False, True])
@pytest.mark.parametrize("call", _CALLS.values(), ids=_CALLS)
@pytest.mark.parametrize("name", [*BASES, *(f"{base}+autotune" for base in BASES)])
def test_each_kind_of_call_is_as_tfxio_serves_it(checker, name, call, is_ragged):
    files = (File(records=77), File(records=77), File(records=76))
    case = Case(name, _FEATURES, is_ragged, files, calls=(call,))
    assert checker.check(case.consistent()) is None


@pytest.mark.slow
def test_a_few_drawn_cases_are_as_tfxio_serves_them(checker):
    found = failures.of_drawn(checker, cases(), count=_FEW, seed=_SEED)
    assert not found.groups, found.table()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_drawn_cases_are_as_tfxio_serves_them(checker):
    """How many: `DIFFERENTIAL_INPUT_CASES`; again the same: `DIFFERENTIAL_INPUT_SEED`."""
    found = failures.of_many(checker, cases(wide=True), "DIFFERENTIAL_INPUT", count=_MANY)
    assert not found.groups, found.table()
