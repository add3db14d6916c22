"""SplitStep: one training step in parts, so that it can be compiled, sliced and repeated."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tfx_perf.tf_internals import datasets
from tfx_perf.tf_internals.graphs import QuickFunction
from tfx_perf.training.keras_api import per_row_rng, private_attributes
from tfx_perf.training.keras_api.base_api import KerasApi, PartOfBatch, Tensors
from tfx_perf.training.keras_api.per_row_rng import Rows
from tfx_perf.training.step import replica_part, slices
from tfx_perf.training.step.slices import Gradients

Logs = dict[str, Any]
Checks = list[tuple[str, tf.Tensor]]  # conditions, each after the error message if it is false


class SplitStep:
    """Keras' own `train_step` in parts, in replica context.

    The parts: gradients of the (scaled) loss, one application by the optimizer, metrics. In
    slices, the metrics come before the application, with each slice's predictions.
    """

    def __init__(
        self,
        model: Any,
        keras_api: KerasApi,
        *,
        xla: bool = False,
        updating: Callable[[Any, KerasApi], AbstractContextManager[None]] | None = None,
        gradient_checkpointing: Callable[..., None] | None = None,
        forward: Callable[[Tensors], Tensors] | None = None,
    ) -> None:
        """Prepares a step of a compiled model with Keras' own `train_step`.

        `xla` leaves the optimizer outside, the one placement that is legal under every strategy,
        because `merge_call` cannot cross a nested `tf.function`. The optimizer's update is traced
        in the context `updating`; `gradient_checkpointing` changes the traced backward pass, given
        the gradient that it begins with. `forward` computes predictions from x; None calls the
        model.
        """
        self.compiled_shapes: dict[str, None] | None = {} if xla else None  # formatted, as traced
        self.ranges = IndexRanges()  # checks that XLA leaves out
        self._forward = forward or functools.partial(keras_api.forward, model)
        self._model = model
        self._keras_api = keras_api
        self._xla = xla
        self._updating = updating
        self._checkpoint_gradients = gradient_checkpointing
        self.retrace()

    def retrace(self) -> None:
        """Forgets what was traced."""
        self._compute: Callable[..., Any] = self._forward_backward
        if self._xla or self._checkpoint_gradients:  # a graph of its own
            self._compute = QuickFunction(
                self._forward_backward, jit_compile=self._xla or None, reduce_retracing=True
            )
        self._slice = QuickFunction(self._one_slice, reduce_retracing=True)

    def run(self, batch: Tensors, micro_batches: tf.Tensor | None = None) -> Logs:
        """Trains on one batch; returns the results of the metrics.

        The batch is cut into `micro_batches` slices (int32), at most one for each row, if given.
        """
        part = replica_part.part_of(batch, model=self._model, keras_api=self._keras_api)
        if micro_batches is None:
            gradients, metrics = self._gradients(batch, part)
        else:
            gradients = self._in_slices(batch, micro_batches, part)
            metrics = self._model.get_metrics_result
        # Otherwise the optimizer counts a step without data, or with an index out of range.
        before = tf.nest.flatten(gradients if self._xla else batch, expand_composites=True)
        waits = tf.control_dependencies([each for each in before if each is not None])
        with tf.variable_creator_scope(_create_now), waits:
            self._apply(gradients)
        return metrics()

    def gradients(self, batch: Tensors) -> tuple[Gradients, Tensors]:
        """Returns a batch's gradients and predictions, the part of a step that XLA compiles."""
        x, y, weight = self._keras_api.unpack(batch)
        return self._compute(x, y, weight, None)[:2]

    def run_in_xla(self, batch: Tensors) -> tuple[Logs, tf.Tensor]:
        """Trains on a batch under XLA; returns logs and whether `ranges` hold (a tensor)."""
        x, y, weight = self._keras_api.unpack(batch)
        gradients, y_pred, _, holds = self._compute(x, y, weight, None)
        self._apply(gradients)
        logs = self._keras_api.metrics(self._model, x, y, y_pred, weight)
        return logs, tf.constant(True) if holds is None else holds

    def _apply(self, gradients: Gradients) -> None:
        model, keras_api = self._model, self._keras_api
        updating = self._updating
        with updating(model.optimizer, keras_api) if updating else contextlib.nullcontext():
            keras_api.apply(model, gradients)

    def _forward_backward(
        self, x: Tensors, y: Tensors, weight: Tensors, part: PartOfBatch | None
    ) -> tuple[Gradients, Tensors, Tensors, tf.Tensor | None]:
        """Returns gradients, predictions, their masks, and whether `ranges` hold."""
        model, keras_api = self._model, self._keras_api
        place = functools.partial(replica_part.place_of, (x, y, weight), part)
        with self.ranges.watched(), per_row_rng.of_rows(place), tf.GradientTape() as tape:
            y_pred = self._forward(x)
            loss = keras_api.loss(model, x, y, y_pred, weight, part=part)
            if part is not None and part.slice_share is not None:
                # Not applied to gradients: a scaled loss's would overflow sooner than the batch's.
                loss *= tf.cast(part.slice_share, loss.dtype)
            loss = keras_api.scaled(model, loss)
        seed = None
        if self._checkpoint_gradients:
            with tf.control_dependencies([loss]):  # a constant loss would not be known to come last
                seed = tf.ones_like(loss)
        gradients = tape.gradient(loss, model.trainable_variables, output_gradients=seed)
        if self._checkpoint_gradients:
            self._checkpoint_gradients(seed, xla=self._xla)
        return gradients, y_pred, private_attributes.masks_of(y_pred), self.ranges.holds

    def _gradients(
        self, batch: Tensors, part: PartOfBatch | None
    ) -> tuple[Gradients, Callable[[], Any]]:
        x, y, weight = self._keras_api.unpack(batch)
        if self.compiled_shapes is not None:
            parts = tf.nest.flatten((x, y, weight), expand_composites=True)
            shapes = (part.shape for part in parts if part is not None and part.shape.rank)
            self.compiled_shapes[format_shapes(shapes)] = None

        def compute() -> Any:
            gradients, *others = self._compute(x, y, weight, part)
            weights = self._model.trainable_variables
            return list(map(_with_static_shape, gradients, weights)), *others

        gradients, y_pred, masks, holds = replica_part.computed_from_rows(compute, batch)
        private_attributes.restore_masks(y_pred, masks)
        if self._xla and holds is not None:
            with tf.control_dependencies([self.ranges.assertion(holds)]):
                gradients = tf.nest.map_structure(
                    lambda each: None if each is None else tf.identity(each), gradients
                )
        if part is not None and part.share is not None:
            # Not applied to the loss, so that both passes need not wait for other replicas.
            gradients = [_times(each, part.share) for each in gradients]
        is_slice, keras_api = part is not None and part.slice_share is not None, self._keras_api
        metrics = keras_api.update_metrics if is_slice else keras_api.metrics
        return gradients, lambda: metrics(self._model, x, y, y_pred, weight)

    def _one_slice(self, batch: Tensors, part: PartOfBatch) -> Gradients:
        gradients, update_metrics = self._gradients(batch, part)
        update_metrics()
        return gradients

    def _in_slices(self, batch: Tensors, pieces: tf.Tensor, whole: PartOfBatch | None) -> Gradients:
        """Returns the batch's gradients, summed over slices that run one after the other.

        A mean over the batch is the sum of its slices' means, each weighted by its share of
        the rows; sample weights do not change that, because Keras divides by the number of
        rows, not by the weights' sum. Losses that do not depend on the rows (regularizers)
        count once, because the shares add up to 1.
        """
        rows = tf.cast(datasets.row_count(batch), tf.int32)
        pieces = tf.maximum(1, tf.minimum(pieces, rows))
        # Keras weighs a batch by its size where that is static.
        alone = None, datasets.static_row_count(batch) or 1
        share_of_all, weight = alone if whole is None else (whole.share, whole.counts_as)
        place = replica_part.place_of(batch, whole) or Rows(0, rows, rows)
        # If draws are made row by row, each slice uses the seeds of the whole batch.
        seeds = self._keras_api.seeds(self._model) if per_row_rng.are_lasting() else []
        first_seeds = [tf.identity(tf.convert_to_tensor(seed)) for seed in seeds]

        def piece(index: tf.Tensor) -> Gradients:
            begin, size = slices.bounds(rows, pieces=pieces, index=index)
            # In float64 regardless of the loss; 0 for a replica without rows.
            share = tf.math.divide_no_nan(tf.cast(size, tf.float64), tf.cast(rows, tf.float64))
            counts_as = tf.cast(share * tf.cast(weight, tf.float64), tf.float32)
            part = PartOfBatch(
                share=share_of_all,
                rows=size,
                counts_as=counts_as,
                place=Rows(place.first + begin, size, place.of_all),
                slice_share=share,
            )
            return self._slice(slices.rows(batch, begin, size), part)

        def body(index: tf.Tensor, sums: list[Any]) -> tuple[tf.Tensor, list[Any]]:
            for seed, value in zip(seeds, first_seeds, strict=True):
                seed.assign(value)
            pairs = zip(sums, piece(index), strict=True)
            return index + 1, [slices.add(sum_, term, index=index) for sum_, term in pairs]

        # The first slice runs before the loop, because the loop needs to know the structures.
        first = piece(tf.constant(0))
        begun = [slices.begin_sum(each, terms=pieces) for each in first]
        _, sums = tf.while_loop(
            lambda index, _: index < pieces,
            body,
            [tf.constant(1), begun],
            parallel_iterations=1,  # more would need the memory of several slices
        )
        return [slices.end_sum(sum_, first=each) for sum_, each in zip(sums, first, strict=True)]


def format_shapes(shapes: Iterable[Any]) -> str:
    """Returns a description of shapes, equal ones only once, e.g. `32x8, 32x1`."""
    listed = ("x".join("?" if size is None else str(size) for size in shape) for shape in shapes)
    return ", ".join(filter(None, dict.fromkeys(listed)))


def _create_now(make: Callable[..., Any], **options: Any) -> Any:
    """Creates a variable that waits for no operation, so TensorFlow can initialize it first."""
    with tf.control_dependencies(None):
        return make(**options)


def _with_static_shape(gradient: Any, weight: Any) -> Any:
    """Returns a gradient of constant shape, which a sparse one from an XLA function lacks."""
    if not isinstance(gradient, tf.IndexedSlices) or gradient.dense_shape is None:
        return gradient
    shape = tf.constant(list(weight.shape), gradient.dense_shape.dtype)
    return tf.IndexedSlices(gradient.values, gradient.indices, shape)


def _times(gradient: Any, factor: tf.Tensor) -> Any:
    if gradient is None:
        return None
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient * tf.cast(factor, gradient.dtype)
    values = gradient.values * tf.cast(factor, gradient.dtype)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


class IndexRanges:
    """The conditions under which Keras' `fit` would not raise an error.

    XLA replaces an index out of range by the nearest one in range, and drops assertions.
    """

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
    if tf.get_static_value(indices) is not None:  # it was looked at when it was written
        return []
    if source.dtype == tf.resource:
        size, limit = tf.raw_ops.VariableShape(input=source, out_type=tf.int64)[axis], None
    else:
        size, limit = tf.shape(source, tf.int64)[axis], source.shape[axis]
    indices = tf.cast(indices, tf.int64)
    condition = (indices >= 0) & (indices < size)
    return [(f"{name}: indices[...] is not in [0, {limit or 'n'})", condition)]
