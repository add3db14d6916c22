"""The parts of a plan's key that are the machine's."""

from tfx_perf import formatting
from tfx_perf.hardware import devices, versions


def identity(*packages: str) -> dict[str, str]:
    """Returns what a measurement on this machine holds for, `host` and `versions`.

    Args:
        *packages: distributions whose versions count, beside TensorFlow's and tfx-perf's.
    """
    found = devices.describe()
    memory_class_bytes = int(found["memory_class_bytes"])
    installed = versions.installed(*packages, "tfx-perf")
    return {
        "host": ", ".join(
            [
                f"{found['cpu_count']} x {found['cpu_model']}",
                found["cpu_features"],
                f"memory below {formatting.format_bytes(memory_class_bytes)}",
                f"{found['device_count']} x {found['device_kind']}",
            ]
        ),
        "versions": ", ".join(
            f"{name} {version}"
            for name, version in {"tensorflow": found["tensorflow"], **installed}.items()
        ),
    }
