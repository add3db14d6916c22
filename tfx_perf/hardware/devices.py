"""The devices TensorFlow uses, and the environment that makes figures comparable."""

import platform

import tensorflow as tf

from tfx_perf.hardware import host, versions


def accelerators() -> list[tf.config.PhysicalDevice]:
    """Returns the visible GPUs, or the CPU where there is none."""
    return tf.config.get_visible_devices("GPU") or tf.config.get_visible_devices("CPU")


def device_kind(device: tf.config.PhysicalDevice) -> str:
    """Returns the device's product name, e.g. `NVIDIA A100-SXM4-40GB`, or its type."""
    details = tf.config.experimental.get_device_details(device)
    return details.get("device_name", device.device_type)


def describe() -> dict[str, str]:
    """Returns what a run's speed and memory depend on beside the model and the plan.

    The gate compares only runs whose values all agree.
    """
    found = accelerators()
    packages = versions.installed("keras", "tf-keras")
    return {
        "device_kind": ", ".join(sorted({device_kind(device) for device in found})),
        "device_count": str(len(found)),
        "cpu_model": host.cpu_model(),
        "cpu_count": str(host.cpu_count()),
        "cpu_features": " ".join(host.cpu_features()),
        "tensorflow": tf.__version__,
        "keras": packages["keras"] or "not installed",
        "tf_keras": packages["tf-keras"] or "not installed",
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
