"""Assigns exclusive CPUs to each of several processes on this machine.

A CPU is a hardware thread, as Linux schedules; a core has one or several
(https://docs.kernel.org/admin-guide/cputopology.html).
"""

import os
import pathlib

from tfx_perf.core import errors

Cpus = frozenset[int]

_CPUS = pathlib.Path("/sys/devices/system/cpu")


def shares(count: int) -> list[Cpus]:
    """Returns exclusive CPUs for each process, as whole cores if possible; UserError if too few."""
    usable = frozenset(os.sched_getaffinity(0))
    cores = sorted({_core_of(cpu) & usable for cpu in usable}, key=_place)
    cpus = [frozenset({cpu}) for core in cores for cpu in sorted(core)]
    units = cores if len(cores) >= count else cpus
    if len(units) < count:
        raise errors.UserError(
            f"Expected a CPU for each worker. Received: cpu-binding=exclusive, {count} workers and "
            f"{len(cpus)} CPUs. Start fewer workers, or leave --cpu-binding out."
        )
    ends = [len(units) * index // count for index in range(count + 1)]
    return [
        frozenset().union(*units[begin:end]) for begin, end in zip(ends, ends[1:], strict=False)
    ]


def format_cpus(cpus: Cpus) -> str:
    """Returns a list of CPUs as Linux writes it, e.g. `0-3,8`."""
    parts: list[tuple[int, int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], cpu)
        else:
            parts.append((cpu, cpu))
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in parts)


def _core_of(cpu: int) -> Cpus:
    """Returns the CPUs of a CPU's core; if Linux does not list them, only that CPU."""
    ranges = (one.partition("-") for one in _sysfs(cpu, "thread_siblings_list").split(",") if one)
    siblings = frozenset(
        each for low, _, high in ranges for each in range(int(low), int(high or low) + 1)
    )
    return siblings or frozenset({cpu})


def _place(core: Cpus) -> tuple[int, int]:
    first = min(core)
    return int(_sysfs(first, "physical_package_id") or 0), first


def _sysfs(cpu: int, name: str) -> str:
    try:
        return (_CPUS / f"cpu{cpu}" / "topology" / name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
