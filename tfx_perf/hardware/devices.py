"""The devices TensorFlow uses, and the environment that makes figures comparable."""

import dataclasses
import pathlib
import platform
import re

import tensorflow as tf

from tfx_perf.core import formatting
from tfx_perf.hardware import host, versions
from tfx_perf.tf_internals import devices

_DRIVER = pathlib.Path("/proc/driver/nvidia/version")


def accelerators() -> list[tf.config.PhysicalDevice]:
    """Returns the visible GPUs, or the CPU where there is none."""
    return tf.config.get_visible_devices("GPU") or tf.config.get_visible_devices("CPU")


def is_cpu_alone() -> bool:
    """Whether nothing but the CPU computes."""
    return {device.device_type for device in accelerators()} == {"CPU"}


def device_kind(device: tf.config.PhysicalDevice) -> str:
    """Returns the device's product name, e.g. `NVIDIA A100-SXM4-40GB`, or its type."""
    details = tf.config.experimental.get_device_details(device)
    return details.get("device_name", device.device_type)


def describe() -> dict[str, str]:
    """Returns the parts of a run's environment that must agree for the gate to compare runs."""
    visible = accelerators()
    packages = versions.installed("keras", "tf-keras")
    return {
        "device_kind": ", ".join(sorted({device_kind(device) for device in visible})),
        "device_count": str(len(visible)),
        "cpu_model": host.cpu_model(),
        "cpu_count": str(host.cpu_count()),
        "cpu_features": " ".join(host.cpu_features()),
        "tensorflow": tf.__version__,
        "keras": packages["keras"] or "not installed",
        "tf_keras": packages["tf-keras"] or "not installed",
        "python": ".".join(platform.python_version_tuple()[:2]),
        # Up to the next power of two: kernels report slightly different sizes of like machines.
        "memory_class_bytes": str(2 ** host.memory_limit_bytes().bit_length()),
        **(gpu_software() if tf.config.get_visible_devices("GPU") else {}),
    }


def key_parts(*packages: str) -> dict[str, str]:
    """Returns the machine's parts of a cache key, with the versions of further `packages`."""
    parts = describe()
    memory = formatting.format_bytes(int(parts["memory_class_bytes"]))
    machine = [
        f"{parts['cpu_count']} x {parts['cpu_model']}",
        parts["cpu_features"],
        f"memory below {memory}",
        f"{parts['device_count']} x {parts['device_kind']}",
    ]
    installed = {
        "tensorflow": parts["tensorflow"], **versions.installed(*packages, "tfx-perf")
    }  # fmt: skip
    return {
        "host": ", ".join(machine),
        "versions": ", ".join(f"{name} {version}" for name, version in installed.items()),
    }


def gpu_software() -> dict[str, str]:
    """Returns the versions that a GPU's kernels come from: CUDA, cuDNN and NVIDIA's driver."""
    build = tf.sysconfig.get_build_info()
    try:
        driver = re.search(r"\d+\.\d+(\.\d+)?", _DRIVER.read_text(encoding="utf-8"))
    except OSError:
        driver = None
    return {
        "cuda": str(build.get("cuda_version")),
        "cudnn": str(build.get("cudnn_version")),
        "driver": driver.group() if driver else "unknown",
    }


def allocator_device() -> str:
    """Returns the device whose allocator is read: the first GPU, or the CPU."""
    return "GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0"


def memory_bytes() -> int:
    """Returns all bytes that a training may use: a GPU allocator's limit, or the RAM on the CPU."""
    device = allocator_device()
    if device.startswith("CPU"):
        return host.memory_limit_bytes()
    return devices.allocator_limit_bytes(device)


@dataclasses.dataclass(frozen=True)
class MemoryLimit:
    """A bound on a step's peak memory, and the source that it is a share of."""

    bytes: int
    source: str


def memory_limit(*, max_utilization: float, reserved_bytes: int = 0) -> MemoryLimit:
    """Returns a share (0-1) of what the GPU's allocator may use, or of the available RAM.

    `reserved_bytes` of the RAM count as taken.
    """
    device = allocator_device()
    if device.startswith("CPU"):
        available = max(0, host.available_memory_bytes() - reserved_bytes)
        source = "available RAM"
    else:
        available, source = devices.allocator_limit_bytes(device), f"allocator limit of {device}"
    return MemoryLimit(int(max_utilization * available), f"{max_utilization:.0%} of {source}")
