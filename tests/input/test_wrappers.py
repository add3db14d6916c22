"""Wrappers keep the promises of the candidates inside of them.

Each is a `wrapper`: `projection`, `autotune`, `own_threads`, `deep_prefetch`, `device_prefetch`.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from record_data import MANY_KINDS_SCHEMA, RAGGED_SCHEMA, SPARSE_SCHEMA

from tfx_perf.input import candidate, candidates
from tfx_perf.input.candidates import projection
from tfx_perf.input.limits import Limits
from tfx_perf.input.parameters import Parameters
from tfx_perf.input.proof import fingerprint

pytestmark = pytest.mark.one_case

AMPLE = Limits(memory_bytes=2**30)
OURS = [name for name in candidates.CANDIDATES if name != "default"]
# A projection needs features that are unused, and a device an accelerator.
ALONE = [kind for kind in candidates.REFINEMENTS
         if kind not in (candidates.Projection, candidates.DevicePrefetch)]  # fmt: skip
EVERYWHERE = [
    *(f"{base}+{each.kind}" for base, each in itertools.product([*OURS, "default"], ALONE)),
    *(f"{base}+projection" for base in OURS),
    "columns+projection+own_threads+deep_prefetch",
]  # fmt: skip
every_wrapping = pytest.mark.parametrize("name", EVERYWHERE)
UNUSED = ("pair", "words", "label", "nonsense")


def build(name, source, unused=UNUSED, limits=AMPLE):
    made = candidates.make(name, Parameters(unused_features=unused))
    assert made.name == name
    assert made.inner.description in made.description
    return made.build(source, limits=limits)


@pytest.fixture(scope="module")
def served():
    """Builds with one candidate of each name, as a plan does: it loads a split's table once."""
    made = {name: candidates.make(name, Parameters(unused_features=UNUSED)) for name in EVERYWHERE}
    return lambda name, source: made[name].build(source, limits=AMPLE)


def used(dataset):
    """The dataset without what a projection replaces."""
    def only(features, label):
        return {key: features[key] for key in features if key not in UNUSED}, label

    return dataset.map(only)


def digest_of_used(source):
    return fingerprint.digest(used(source.default()))


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
    assert fingerprint.digest(used(served(name, one))) == once(digest_of_used, one)
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


@pytest.mark.parametrize("schema", [SPARSE_SCHEMA, RAGGED_SCHEMA])
@pytest.mark.parametrize("options", [{}, {"num_epochs": 1}])
@pytest.mark.parametrize("name", ["columns", "block_reader"])
def test_projection_leaves_empty_stand_ins(name, schema, options, make_source):
    source = make_source(schema=schema, **options)
    features, label = next(iter(build(f"{name}+projection", source)))
    assert features["pair"].numpy().tolist() == [[0, 0]] * 16
    assert features["words"].shape[0] == label.shape[0] == 16
    words = features["words"]
    words = words.to_sparse() if isinstance(words, tf.RaggedTensor) else words
    assert words.dense_shape.numpy().tolist() == [16, 0]
    assert len(np.unique(features["number"])) == 16


def test_projection_does_not_parse(make_source):
    source = make_source()
    asked = []

    def parser(unused):
        asked.append(unused)
        return source.parser(unused)

    watched = type(source)(
        source.file_patterns, source.default_factory, source.options, source.schema, parser
    )
    next(iter(build("columns+projection", watched)))
    assert asked[-1] == frozenset({"pair"})


@pytest.mark.parametrize("unused", [(), ("label",), ("nonsense",)])
def test_projection_without_unused_features(unused, make_source):
    with pytest.raises(candidate.NotApplicable, match="no unused features"):
        build("columns+projection", make_source(), unused)


def test_projection_refusals(make_source):
    source = make_source()
    with pytest.raises(candidate.NotApplicable, match="no feature is used"):
        build("columns+projection", source, ("number", "pair", "city"))
    unparsed = type(source)(source.file_patterns, source.default_factory, source.options)
    with pytest.raises(candidate.NotApplicable, match="parse"):
        build("columns+projection", unparsed)


def test_label_that_is_a_feature_can_be_unused(make_source):
    batch = next(iter(build("columns+projection", make_source(label_key=None))))
    assert not batch["label"].numpy().any()
    assert len(np.unique(batch["number"])) == 16


@pytest.mark.parametrize("rows", [3, None])
def test_stand_ins_fit_their_specs(rows):
    for spec in [
        tf.TensorSpec([rows, 2], tf.string),
        tf.TensorSpec([rows], tf.int64),
        tf.SparseTensorSpec([rows, None], tf.float32),
        tf.SparseTensorSpec([rows, 7], tf.string),
        tf.RaggedTensorSpec([rows, None], tf.string),
        tf.RaggedTensorSpec([rows, None, None, 4], tf.int64, row_splits_dtype=tf.int32),
    ]:
        value = projection.stand_in(spec, tf.constant(3, tf.int64))
        assert spec.is_compatible_with(value)
        assert value.shape[0] == 3


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
