"""FLOPs of a training's step, the batch that they are counted for, and the hardware's peak.

If sequences are padded batch by batch, each batch has its own FLOPs, and the first one out of a
shuffle would give every run of the same code different FLOPs. So if batches have no fixed shape,
FLOPs are counted for the one of median size among the first ones in the order of the data.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from tfx_perf.core import formatting
from tfx_perf.core.interception import FitCall
from tfx_perf.hardware import devices, peak
from tfx_perf.memory import batches
from tfx_perf.tf_internals import ancestry
from tfx_perf.tf_internals.messages import hlo_pb2
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.replicas import strategies
from tfx_perf.training.step.split_step import SplitStep
from tfx_perf.xla import hlo

_LOOKED_AT = 32  # batches, to find the one of median size


@dataclasses.dataclass(frozen=True)
class Flops:
    """Model FLOPs of a step and peak FLOP/s of all devices; None where unknown, as `note` says."""

    per_step: int | None
    peak_per_second: float | None
    peak_source: str | None
    note: str | None = None

    def without_exceeded_peak(self, executed: int | None, step_seconds: float | None) -> "Flops":
        """Returns these, without the peak if a step exceeds it: then one of the two is wrong."""
        peak_per_second = self.peak_per_second
        if not (executed and step_seconds and peak_per_second):
            return self
        share = executed / step_seconds / peak_per_second
        if share <= 1:
            return self
        reason = (
            f"MFU and HFU refused: {executed:,} FLOPs in {formatting.format_seconds(step_seconds)} "
            f"are {share:.0%} of the peak ({self.peak_source}). Was the machine busy when the "
            "peak was measured?"
        )
        return dataclasses.replace(self, peak_per_second=None, note=reason)


def count_flops(model: Any, batch: Any) -> Flops:
    """Counts the FLOPs of one step on a batch, which may be None, and finds the hardware's peak."""
    if batch is None:
        return Flops(None, None, None, "FLOPs not counted: no batch can be read from x")
    if strategies.servers_of(model.distribute_strategy):
        return Flops(None, None, None, "FLOPs not counted: parameter servers hold the weights")
    try:
        per_step = hlo.count_flops(_step_hlo(model, batch))
    except hlo.NotCompilable as error:
        return Flops(None, None, None, f"FLOPs not counted: {error}")
    accelerators = devices.accelerators()
    roof = peak.peak_flops(accelerators[0], tf.float32)
    if roof.flops_per_second is None:
        return Flops(per_step, None, roof.source)
    hosts = strategies.host_count(model.distribute_strategy)
    peak_per_second = roof.flops_per_second * len(accelerators) * hosts
    return Flops(per_step, peak_per_second, roof.source)


def typical_batch(call: FitCall, first: Any) -> tuple[Any, bool]:
    """Returns a batch to count for, and whether another run finds one of about the same shape.

    Nothing is taken from the user's data; the batch is None if there is no way to read one.
    """
    data = call.arguments["x"]
    if not isinstance(data, tf.data.Dataset) or not _varies(data.element_spec):
        return (batches.peek(call) if first is None else first), True
    again = ancestry.independent(data, without=ancestry.UNORDERED)
    if again is None:  # reading it again may take elements that others need
        return first, False
    try:
        median = _median(again.take(_LOOKED_AT))
    except tf.errors.OpError:  # data that the training did not read may be damaged
        median = None
    return (first, False) if median is None else (median, True)


def _median(data: tf.data.Dataset) -> Any:
    """Returns the batch of median size, the larger one of two; None if there is none.

    The data are read twice, since all batches at once might not fit into memory.
    """
    sizes = sorted(map(_size, data))
    if not sizes:
        return None
    median = sizes[len(sizes) // 2]
    return min(data, key=lambda batch: abs(_size(batch) - median))


def _varies(element_spec: Any) -> bool:
    return any(
        not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None or None in spec.shape[1:]
        for spec in tf.nest.flatten(element_spec)
    )


def _size(batch: Any) -> int:
    parts = tf.nest.flatten(batch, expand_composites=True)
    return sum(part.shape.num_elements() for part in parts)


def _step_hlo(model: Any, batch: Any) -> hlo_pb2.HloModuleProto:
    """Returns HLO of a step's products and little else; NotCompilable if XLA cannot compile it."""
    keras_api = either_keras.api_of(model)
    if keras_api.splitting_obstacle(model):
        return hlo.model_step_hlo(model, batch, optimized=False)
    if model.distribute_strategy.num_replicas_in_sync == 1:
        gradients = SplitStep(model, keras_api).gradients
        return hlo.model_step_hlo(model, batch, optimized=False, step=gradients)

    def backward(batch: Any) -> Any:
        # Keras' own loss is for one replica; this one is for the batch of all replicas.
        x, _, _ = keras_api.unpack(batch)
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(keras_api.forward(model, x))
            loss = tf.add_n([tf.nn.l2_loss(tf.cast(each, tf.float32)) for each in outputs])
        return tape.gradient(loss, model.trainable_variables)

    return hlo.step_hlo(backward, batch, optimized=False)
