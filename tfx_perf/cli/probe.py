"""The child process of `doctor`: loads TFX, if it is there, and tells what TensorFlow sees.

A broken installation can abort the interpreter, and the libraries print while they load. The answer
is the last line of standard output, as JSON.
"""

import json
import resource
import sys
import time

from tfx_perf.hardware import versions


def main() -> None:
    """Loads TFX and writes the answer."""
    started = time.perf_counter()
    import tensorflow as tf

    if versions.has_tfx():
        import tfx.v1  # noqa: F401 - that it loads is the question

    load_time_seconds = time.perf_counter() - started
    from tfx_perf.hardware import devices

    build = tf.sysconfig.get_build_info()
    answer = {
        "load_time_seconds": load_time_seconds,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "gpus": [devices.device_kind(gpu) for gpu in tf.config.list_physical_devices("GPU")],
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
    }
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
