"""What TensorFlow knows about its devices and kernels."""

import tensorflow as tf
from tensorflow.python.client import device_lib
from tensorflow.python.eager import context
from tensorflow.python.framework import config
from tensorflow.python.util import _pywrap_util_port


def are_open() -> bool:
    """Returns whether this process has used a device; until then they may be configured."""
    return getattr(context.context(), "_initialized", False)


def allocator_limit_bytes(device: str) -> int:
    """Returns how much the allocator of a device, e.g. `GPU:0`, may take."""
    (limit_bytes,) = (
        item.memory_limit
        for item in device_lib.list_local_devices()
        if item.name == f"/device:{device}"
    )
    return limit_bytes


def uses_onednn() -> bool:
    """Returns whether this process runs oneDNN's kernels."""
    return _pywrap_util_port.IsMklEnabled()


def are_deterministic() -> bool:
    """Returns whether `tf.config.experimental.enable_op_determinism` was called."""
    return config.is_op_determinism_enabled()


def computing() -> list[str]:
    """Returns this machine's GPUs, or CPUs without any; devices cannot be configured afterwards."""
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in devices]
