"""Workers on one machine: how many it takes, and that those beyond its CPUs share them."""

from tfx_perf import errors
from tfx_perf.hardware import host

# More than anybody has reason to try out: each has a TensorFlow of its own, with threads for all
# CPUs. What works is not refused.
_MOST_FOR_EACH_CPU = 64


def check(count: int, *, given: str) -> None:
    """Checks that a number of processes is none that only a slip can explain.

    Args:
        count: of all that train together on this machine.
        given: what the user gave it by, and its value.

    Raises:
        UserError: it is.
    """
    cpus = host.cpu_count()
    most = _MOST_FOR_EACH_CPU * cpus
    if count > most:
        raise errors.UserError(
            f"Expected at most {most:,} processes that train together on {cpus} CPUs, "
            f"{_MOST_FOR_EACH_CPU} for each. Received: {given}, {count:,} processes. Each has a "
            "TensorFlow of its own in memory, and waits for CPUs. Take fewer workers, or have "
            "distribution.job start them on several machines."
        )


def remark(worker_count: int) -> str:
    """Returns a sentence, without its full stop, if workers share CPUs; else nothing.

    Args:
        worker_count: of those that compute on this machine, and have no CPUs to themselves.
    """
    cpus = host.cpu_count()
    if worker_count <= cpus:
        return ""
    shared = "one core" if cpus == 1 else f"{cpus} cores"
    return f"{worker_count} workers share {shared}, so that each is slower than it would be alone"
