"""FLOPs of a training's step, the batch that they are counted for, and the hardware's peak.

If sequences are padded batch by batch, each batch has its own FLOPs, and the first one out of a
shuffle would give every run of the same code different FLOPs. So if batches have no fixed shape,
FLOPs are counted for the one of median size among the first ones in the order of the data.

The peak of a GPU is its datasheet's dense figure. A CPU has no honest one (the clock depends on the
instructions and the neighbors), so its peak is a matrix multiplication measured on the spot.
"""

import dataclasses
import functools
import re
import time
from typing import Any

import tensorflow as tf

from tfx_perf.core import formatting, records
from tfx_perf.core.interception import FitCall
from tfx_perf.hardware import devices
from tfx_perf.memory import batches
from tfx_perf.tf_internals import ancestry
from tfx_perf.tf_internals.messages import hlo_pb2
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.replicas import strategies
from tfx_perf.training.step.split_step import SplitStep
from tfx_perf.xla import hlo

_LOOKED_AT = 32  # batches, to find the one of median size
_BUDGET_SECONDS = 0.25
_SIZES = (1024, 2048, 4096)

# Dense TFLOPS, no sparsity; patterns are tried on the device's name.
# Source: NVIDIA's datasheets, as collected in MosaicML Composer's `speed_monitor.py` and
# Lightning Fabric's `throughput.py`. A device that is not listed has no peak.
_GPU_TFLOPS: dict[str, dict[str, float]] = {
    r"\bV100-SXM": {"float32": 15.7, "float16": 125},
    r"\bV100-PCIE": {"float32": 14, "float16": 112},
    r"\bT4\b": {"float32": 8.1, "float16": 65},
    r"\bA100\b": {"float32": 19.5, "tf32": 156, "float16": 312, "bfloat16": 312},
    r"\bA10\b": {"float32": 31.2, "tf32": 62.5, "float16": 125, "bfloat16": 125},
    r"\bL4\b": {"float32": 30.3, "tf32": 60, "float16": 121, "bfloat16": 121},
    r"\bH100 PCIe": {"float32": 51.2, "tf32": 378, "float16": 756, "bfloat16": 756},
    r"\bH100 NVL": {"float32": 60, "tf32": 417.5, "float16": 835.5, "bfloat16": 835.5},
    r"\bH100.*HBM3": {"float32": 67, "tf32": 494.5, "float16": 989.5, "bfloat16": 989.5},
    r"\bH200$": {"float32": 67, "tf32": 494.5, "float16": 989.5, "bfloat16": 989.5},
    r"(?<!G)\bB200\b": {"float32": 80, "tf32": 1100, "float16": 2250, "bfloat16": 2250},
    r"\bGB200\b": {"float32": 90, "tf32": 1250, "float16": 2500, "bfloat16": 2500},
}


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
    roof = peak_flops(accelerators[0], model.compute_dtype)
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


class Peak(records.Record):
    """A device's peak, at 2 FLOPs per multiply-add; `source` says where from, or why it is None."""

    flops_per_second: float | None
    source: str


def peak_flops(device: tf.config.PhysicalDevice, dtype: tf.DType | str) -> Peak:
    """Returns the peak of one device for matrix multiplications in `dtype`.

    On a GPU `float32` means TF32 where the device has it and TensorFlow allows it, which it does
    unless `tf.config.experimental.enable_tensor_float_32_execution(False)`.
    """
    dtype_name = tf.as_dtype(dtype).name
    if device.device_type == "CPU":
        return _measured(dtype_name)
    if device.device_type == "GPU":
        name = tf.config.experimental.get_device_details(device).get("device_name", "")
        tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
        return gpu_peak(name, dtype_name, tf32=tf32)
    return Peak(flops_per_second=None, source=f"no peak is known for a {device.device_type}")


def gpu_peak(name: str, dtype_name: str, *, tf32: bool) -> Peak:
    """Returns the datasheet's dense peak by the driver's name, e.g. `NVIDIA A100-SXM4-40GB`."""
    row = next((row for pattern, row in _GPU_TFLOPS.items() if re.search(pattern, name)), None)
    # A MIG slice carries the whole card's name but has only a part of its units.
    if row is None or " MIG " in name:
        return Peak(flops_per_second=None, source=f"no peak is known for the GPU {name!r}")
    unit = "tf32" if dtype_name == "float32" and tf32 and "tf32" in row else dtype_name
    if unit not in row:
        return Peak(flops_per_second=None, source=f"no {unit} peak is known for the GPU {name!r}")
    return Peak(flops_per_second=row[unit] * 1e12, source=f"datasheet: {name}, dense {unit}")


@functools.cache
def _measured(dtype_name: str) -> Peak:
    """Returns the best rate of matrix multiplications on the CPU, a bound for any model."""
    best, best_size = 0.0, 0
    with tf.init_scope(), tf.device("CPU:0"):
        multiply = tf.function(tf.linalg.matmul, reduce_retracing=True)
        for size in _SIZES:
            matrix = tf.cast(tf.random.stateless_uniform((size, size), seed=(1, 2)), dtype_name)
            multiply(matrix, matrix).numpy()  # traces and warms up
            share_end = time.perf_counter() + _BUDGET_SECONDS / len(_SIZES)
            while time.perf_counter() < share_end:
                before = time.perf_counter()
                multiply(matrix, matrix).numpy()
                rate = 2 * size**3 / (time.perf_counter() - before)
                best, best_size = max((best, best_size), (rate, size))
            if 2 * (2 * size) ** 3 / best > _BUDGET_SECONDS / len(_SIZES):
                break  # the next size takes longer than its share, and adds little
    return Peak(
        flops_per_second=best,
        source=f"measured: best {dtype_name} {best_size}x{best_size} matmul on this CPU",
    )
