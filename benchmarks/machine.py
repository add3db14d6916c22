"""The machine that a benchmark ran on."""

from tfx_perf.core import formatting
from tfx_perf.hardware import host


def describe() -> str:
    """Returns processor, CPUs and memory."""
    memory = formatting.format_bytes(host.memory_limit_bytes())
    return f"{host.cpu_model()}, {host.cpu_count()} CPUs, {memory} of memory"
