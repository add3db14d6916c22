"""What XLA does not check: it takes an index out of range for the nearest, and drops assertions."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

Checks = list[tuple[str, tf.Tensor]]  # what is wrong otherwise, and a condition


class IndexRanges:
    """The conditions under which Keras' `fit` would not raise an error."""

    def __init__(self) -> None:
        self.holds: tf.Tensor | None = None  # whether all hold; None without conditions
        self._complaints: list[str] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Collects the conditions of the operations that are traced inside."""
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        yield
        checks = [check for op in graph.get_operations()[before:] for check in _checks(op)]
        self._complaints = [complaint for complaint, _ in checks]
        conditions = [tf.reduce_all(condition) for _, condition in checks]
        self.holds = tf.reduce_all(tf.stack(conditions)) if conditions else None

    def assertion(self, holds: tf.Tensor) -> tf.Operation:
        """Returns an operation that raises `InvalidArgumentError` if `holds` is false."""
        message = (
            f"{', or '.join(self._complaints)} (found by the plan that trains with XLA, which does "
            "not say which one; Keras fit does)."
        )
        return tf.debugging.Assert(holds, [message])


def _checks(operation: tf.Operation) -> Checks:
    kind, inputs, name = operation.type, operation.inputs, operation.name
    if kind == "Assert" or (kind == "If" and "AssertGuard" in name):
        return [(f"the assertion {name} fails", inputs[0])]
    if kind == "SparseSoftmaxCrossEntropyWithLogits":
        return _in_range(name, inputs[1], inputs[0], axis=-1)
    if kind in {"GatherNd", "ResourceGatherNd"}:
        indices = inputs[1]
        return [
            check
            for axis in range(indices.shape[-1] or 0)
            for check in _in_range(name, indices[..., axis], inputs[0], axis=axis)
        ]
    if kind in {"Gather", "ResourceGather"}:
        batch_dims = operation.get_attr("batch_dims") if kind == "ResourceGather" else 0
        return _in_range(name, inputs[1], inputs[0], axis=batch_dims)
    if kind == "GatherV2":
        axis = tf.get_static_value(inputs[2])
        return [] if axis is None else _in_range(name, inputs[1], inputs[0], axis=int(axis))
    return []


def _in_range(name: str, indices: tf.Tensor, source: tf.Tensor, *, axis: int) -> Checks:
    """Returns the condition that all indices exist in an axis of a tensor or a variable."""
    if tf.get_static_value(indices) is not None:  # it was looked at when it was written
        return []
    if source.dtype == tf.resource:
        size, limit = tf.raw_ops.VariableShape(input=source, out_type=tf.int64)[axis], None
    else:
        size, limit = tf.shape(source, tf.int64)[axis], source.shape[axis]
    indices = tf.cast(indices, tf.int64)
    condition = (indices >= 0) & (indices < size)
    return [(f"{name}: indices[...] is not in [0, {limit or 'n'})", condition)]
