"""Drawn cases are served as TFXIO serves them; what once were not is kept in `examples.jsonl`."""

import pathlib

import pytest

from tests.fuzzing import failures
from tests.fuzzing.found import found_once

from .cases import Case
from .checking import Checker
from .strategies import cases

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
def test_what_was_found_once_is_as_tfxio_serves_it(checker, example):
    assert checker.check(Case.from_json(example)) is None


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
