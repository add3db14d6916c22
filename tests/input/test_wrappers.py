"""Wrappers keep the promises of the candidates inside of them.

Each is a `wrapper`: `autotune`, `own_threads`, `deep_prefetch`, `device_prefetch`.
"""

import itertools

import pytest
from record_data import MANY_KINDS_SCHEMA, SPARSE_SCHEMA

from tfx_perf.input import candidate, candidates
from tfx_perf.input.limits import Limits
from tfx_perf.input.proof import fingerprint

pytestmark = pytest.mark.one_case

AMPLE = Limits(memory_bytes=2**30)
OURS = [name for name in candidates.CANDIDATES if name != "default"]
# A device needs an accelerator.
ALONE = [kind for kind in candidates.REFINEMENTS if kind is not candidates.DevicePrefetch]
EVERYWHERE = [
    *(f"{base}+{each.kind}" for base, each in itertools.product([*OURS, "default"], ALONE)),
    "columns+own_threads+deep_prefetch",
]
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
    wrapped = candidates.make("columns+own_threads+deep_prefetch")
    wrapped.build(make_source(), limits=AMPLE)
    assert wrapped.held_bytes == wrapped.inner.inner.held_bytes > 0


def test_deep_prefetch_counts_its_batches(make_source):
    source = make_source(batch_size=200)
    with pytest.raises(candidate.NotApplicable, match="budget"):
        build("default+deep_prefetch", source, limits=Limits(memory_bytes=1000))


def test_own_threads(make_source):
    threading = build("columns+own_threads", make_source()).options().threading
    assert threading.private_threadpool_size >= 1
    assert threading.max_intra_op_parallelism == 1


def test_device_prefetch_without_an_accelerator(make_source):
    with pytest.raises(candidate.NotApplicable, match="no accelerator"):
        build("columns+device_prefetch", make_source())
