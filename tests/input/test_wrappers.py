"""`autotune` keeps the promises of the candidate inside of it, as every `wrapper` does."""

import pytest
from record_data import MANY_KINDS_SCHEMA, SPARSE_SCHEMA

from tfx_perf.input import candidates
from tfx_perf.input.limits import Limits
from tfx_perf.input.proof import fingerprint

pytestmark = pytest.mark.one_case

AMPLE = Limits(memory_bytes=2**30)
EVERYWHERE = [f"{base}+autotune" for base in candidates.CANDIDATES]
every_wrapping = pytest.mark.parametrize("name", EVERYWHERE)


def build(name, source, limits=AMPLE):
    made = candidates.make(name)
    assert made.name == name
    assert made.inner.description in made.description
    return made.build(source, limits=limits)


@pytest.fixture(scope="module")
def served():
    """Builds with one candidate of each name, as a plan does: it loads a split's table once."""
    made = {name: candidates.make(name) for name in EVERYWHERE}
    return lambda name, source: made[name].build(source, limits=AMPLE)


def numbers(dataset):
    return [n for features, _ in dataset for n in features["number"].numpy().ravel().tolist()]


@every_wrapping
@pytest.mark.parametrize("options", [{}, {"num_epochs": 1}, {"num_epochs": 2, "batch_size": 300}])
def test_element_spec_and_cardinality_are_the_defaults(name, options, make_source, served, built):
    source = make_source(schema=MANY_KINDS_SCHEMA, **options)
    found, expected = served(name, source), built("default", source)
    assert found.element_spec == expected.element_spec
    assert list(found.element_spec[0]) == list(expected.element_spec[0])
    assert found.cardinality() == expected.cardinality()


@every_wrapping
def test_examples_are_the_defaults(name, make_source, once, served, built):
    one = make_source(schema=SPARSE_SCHEMA, num_epochs=1)
    assert fingerprint.digest(served(name, one)) == once(fingerprint.digest, built("default", one))
    in_order = make_source(
        schema=SPARSE_SCHEMA, num_epochs=2, drop_final_batch=True, shuffle=False
    )
    assert numbers(served(name, in_order)) == once(numbers, built("default", in_order))


@every_wrapping
def test_seeds(name, make_source, served):
    def order(seed):
        return numbers(served(name, make_source(num_epochs=2, shuffle_seed=seed)))

    first = order(1)
    assert first == order(1)
    assert first != order(2)
    assert first[:230] != first[230:]


def test_held_bytes_are_those_inside(make_source):
    wrapped = candidates.make("columns+autotune")
    wrapped.build(make_source(), limits=AMPLE)
    assert wrapped.held_bytes == wrapped.inner.held_bytes > 0


def test_autotune_is_on(make_source):
    assert build("columns+autotune", make_source()).options().autotune.enabled
