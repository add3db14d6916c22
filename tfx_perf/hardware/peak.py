"""The peak FLOPs that model FLOPs utilization (MFU) is relative to.

A GPU's peak is its datasheet's dense figure. A CPU has no honest one (the clock depends on the
instructions and the neighbors), so its peak is a matrix multiplication measured on the spot.
"""

import functools
import re
import time

import tensorflow as tf

from tfx_perf.core import records

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
