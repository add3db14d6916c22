"""The child process of `doctor`, which a broken installation can abort."""

import resource
import time
from typing import Any

from tfx_perf.hardware import versions


def load() -> dict[str, Any]:
    """Loads TFX, if it is there; returns what that takes, and what TensorFlow sees."""
    started = time.perf_counter()
    import tensorflow as tf

    if versions.has_tfx():
        import tfx.v1  # noqa: F401 - that it loads is the question

    load_time_seconds = time.perf_counter() - started
    from tfx_perf.hardware import devices

    build = tf.sysconfig.get_build_info()
    return {
        "load_time_seconds": load_time_seconds,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "gpus": [devices.device_kind(gpu) for gpu in tf.config.list_physical_devices("GPU")],
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
    }
