"""Parses only the features that the model reads."""

import dataclasses
from typing import Any

import tensorflow as tf

from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.candidates import wrapper
from tfx_perf.tf_data import datasets


class Projection(wrapper.Wrapper):
    """Leaves the unused features unparsed and puts empty stand-ins in their places.

    The structure stays the default's, so the user's code finds every key; what it finds under an
    unused one are zeros, empty strings or empty rows.
    """

    kind = "projection"

    @property
    def ignored_features(self) -> frozenset[str]:
        """The unused features, and those of the inner candidate."""
        return self.inner.ignored_features | frozenset(self.parameters.unused_features)

    @property
    def description(self) -> str:
        """How the inner candidate works, and what is left out."""
        return f"{self.inner.description} Features that the model does not read stay unparsed."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns the inner candidate's dataset over the used features, with stand-ins added."""
        source.need_parse()
        spec = source.element_spec
        features = spec[0] if isinstance(spec, tuple) else spec
        # The label is no feature of the spec, unless it is not split off.
        unused = frozenset(self.parameters.unused_features).intersection(features)
        if not unused:
            raise candidate.NotApplicable("there are no unused features")
        if unused == frozenset(features):
            raise candidate.NotApplicable("no feature is used")
        projected = dataclasses.replace(
            source, unused_features=source.unused_features | unused
        )

        def completed(batch: Any) -> Any:
            used, *label = batch if isinstance(batch, tuple) else (batch,)
            rows = datasets.row_count(used)
            whole = {
                name: stand_in(kind, rows) if name in unused else used[name]
                for name, kind in features.items()
            }
            return (whole, *label) if label else whole

        batches = self.inner.build(projected, limits=limits)
        return datasets.mapped(
            batches, lambda *batch: completed(batch if len(batch) > 1 else batch[0])
        )


def stand_in(spec: tf.TypeSpec, rows: tf.Tensor) -> Any:
    """Returns a value of `spec` with `rows` rows (int64 scalar) that holds nothing.

    Dimensions that the spec leaves open are empty.
    """
    shape = [rows if spec.shape[0] is None else spec.shape[0], *spec.shape[1:]]
    if isinstance(spec, tf.SparseTensorSpec):
        nothing = rows - rows  # unlike 0 it leaves the static dimension open
        sizes = [nothing if size is None else tf.cast(size, tf.int64) for size in shape]
        return tf.SparseTensor(
            indices=tf.zeros([0, len(shape)], tf.int64),
            values=tf.zeros([0], spec.dtype),
            dense_shape=tf.stack(sizes),
        )
    shape = [0 if size is None else size for size in shape]
    if not isinstance(spec, tf.RaggedTensorSpec):
        return tf.zeros(shape, spec.dtype)
    value = tf.zeros([0, *shape[spec.ragged_rank + 1 :]], spec.dtype)
    for depth in reversed(range(spec.ragged_rank)):
        splits = tf.zeros([shape[0] + 1 if depth == 0 else 1], spec.row_splits_dtype)
        value = tf.RaggedTensor.from_row_splits(value, splits, validate=False)
    return value
