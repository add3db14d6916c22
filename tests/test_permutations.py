"""The cases of a costly parametrized test that `make test` keeps include every value."""

import collections
import itertools

import pytest

from tests import permutations

MODELS = ("dense", "lstm", "transformer")
OPTIMIZERS = ("sgd", "adam")


def kept(*parameters):
    cases = list(itertools.product(*parameters))
    return [cases[n] for n in permutations.each_choice(cases)]


@pytest.mark.parametrize(
    "parameters",
    [
        (MODELS,),
        (MODELS, OPTIMIZERS),
        (OPTIMIZERS, MODELS, permutations.KERAS_PACKAGES),
        (MODELS, ("sgd", "adam", "ftrl", "lion", "rmsprop"), ("0", "1")),
    ],
)
def test_each_value_occurs_in_as_few_cases_as_there_are_values_of_one_parameter(parameters):
    found = kept(*parameters)
    assert [set(values) for values in zip(*found, strict=True)] == [*map(set, parameters)]
    assert len(found) == max(map(len, parameters))


def test_values_occur_about_equally_often():
    numbers = tuple(map(str, range(6)))
    found = kept(MODELS, numbers, permutations.KERAS_PACKAGES)
    models, _, packages = zip(*found, strict=True)
    assert set(collections.Counter(models).values()) == {2}
    assert set(collections.Counter(packages).values()) == {3}


def test_of_the_two_keras_packages_alone_one_is_kept():
    assert len(kept(permutations.KERAS_PACKAGES)) == 1


def test_combinations_need_not_be_complete():
    cases = [("dense", "sgd"), ("dense", "adam"), ("lstm", "adam")]
    assert sorted(permutations.each_choice(cases)) == [0, 2]


def test_over_many_names_each_case_is_drawn():
    draws = collections.Counter(permutations.draw(f"test_{n}[keras]") % 2 for n in range(200))
    assert min(draws.values()) > 60
