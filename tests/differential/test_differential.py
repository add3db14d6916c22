"""Drawn trainings end as under Keras' `fit`; what once did not is kept in `examples.jsonl`."""

import dataclasses
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
_FEW, _MANY = 6, 1000


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def checker(request):
    made = Checker(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("example", found_once(_EXAMPLES))
def test_an_example_found_once_is_as_under_keras_fit(checker, example):
    case = dataclasses.replace(Case.from_json(example), package=checker.package)
    assert checker.check(case) is None


@pytest.mark.slow
def test_a_few_drawn_trainings_are_as_under_plain_fit(checker):
    found = failures.of_drawn(checker, cases(checker.package), count=_FEW, seed=_SEED)
    assert not found.groups, found.table()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_drawn_trainings_are_as_under_plain_fit(checker):
    """How many: `DIFFERENTIAL_CASES`; again the same: `DIFFERENTIAL_SEED`."""
    found = failures.of_many(checker, cases(checker.package), "DIFFERENTIAL", count=_MANY)
    assert not found.groups, found.table()
