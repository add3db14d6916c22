"""The host: memory, processors and what the processors can do.

A container's limits are from Linux control groups version 1 and 2:
https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

import contextlib
import ctypes
import math
import os
import pathlib
import platform
import re
from collections.abc import Iterator
from typing import NamedTuple

import psutil

# Devices of NVIDIA, AMD, TPUs, and those passed through to a virtual machine.
_ACCELERATORS = "nvidia[0-9]*", "kfd", "accel[0-9]*", "vfio"
_DEVICES = pathlib.Path("/dev")
_CPU_INFO = pathlib.Path("/proc/cpuinfo")
_GROUPS = pathlib.Path("/sys/fs/cgroup")
_MEMBERSHIP = pathlib.Path("/proc/self/cgroup")
_UNLIMITED = 2**62  # version 1 says "no limit" with the largest number of whole pages
_FEATURES = (
    "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_bf16", "amx_int8",
    "asimd", "asimdhp", "bf16", "sve",
)  # fmt: skip


def memory_limit_bytes() -> int:
    """Returns the RAM this process may use: the machine's, or less in a container."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _group_memory())])


def available_memory_bytes() -> int:
    """Returns the RAM that can still be had: page cache is free, `/dev/shm` and tmpfs are not."""
    left = (max(0, limit - used) for limit, used in _group_memory())
    return min([psutil.virtual_memory().available, *left])


def boot_id() -> str:
    """Returns a machine's name until it restarts, the same in all containers; empty off Linux."""
    return _text(pathlib.Path("/proc/sys/kernel/random/boot_id")) or ""


def anonymous_memory_bytes() -> int:
    """Returns this process's resident memory without pages of files, which can be reclaimed."""
    return resident_memory().anonymous_bytes


class ResidentMemory(NamedTuple):
    """A process's resident memory: what belongs to no file, and the rest."""

    anonymous_bytes: int
    file_bytes: int


def resident_memory() -> ResidentMemory:
    """Returns this process's resident memory."""
    memory = psutil.Process().memory_info()
    shared = getattr(memory, "shared", 0)
    return ResidentMemory(memory.rss - shared, shared)


def reset_resident_peak() -> None:
    """Starts a new measurement of `resident_peak_bytes`."""
    with contextlib.suppress(OSError):  # Linux only; 5 resets the peak, see proc(5)
        pathlib.Path("/proc/self/clear_refs").write_text("5")


def resident_peak_bytes() -> int | None:
    """Returns the peak of the resident set since `reset_resident_peak`, None if not on Linux."""
    status = _text(pathlib.Path("/proc/self/status")) or ""
    match = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(match[1]) * 1024 if match else None  # written in KiB


def return_freed_memory() -> None:
    """Has the allocator return freed memory, which would hide growth, to the system."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if malloc_trim:
        malloc_trim(0)


def cpu_count() -> int:
    """Returns how many CPUs this process may use, after affinity and container quota."""
    if hasattr(os, "sched_getaffinity"):
        schedulable = len(os.sched_getaffinity(0))
    else:  # no affinity on macOS
        schedulable = psutil.cpu_count() or 1
    return max(1, min([schedulable, *map(math.ceil, _cpu_quotas())]))


def cpu_model() -> str:
    """Returns the processor's name, e.g. `AMD EPYC 7B13`."""
    # ARM Linux names no model; the architecture is then the best there is.
    return _cpu_info().get("model name") or platform.processor() or platform.machine()


def cpu_features() -> tuple[str, ...]:
    """Returns the Linux names of the instructions that speed training up; empty off Linux."""
    info = _cpu_info()
    flags = (info.get("flags") or info.get("Features") or "").split()
    return tuple(feature for feature in _FEATURES if feature in flags)


def may_have_accelerators() -> bool:
    """Returns whether the system has something like a GPU or TPU; opens none."""
    return any(any(_DEVICES.glob(name)) for name in _ACCELERATORS)


def _cpu_info() -> dict[str, str]:
    first = (_text(_CPU_INFO) or "").split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _cpu_quotas() -> list[float]:
    """Returns the CPU time per wall time of every group that limits it, e.g. 1.5."""
    quotas = []
    for folder in _groups("cpu"):
        both = _text(folder / "cpu.max")  # version 2: quota and period in one file
        quota = both.split()[0] if both else _text(folder / "cpu.cfs_quota_us")
        period = both.split()[1] if both else _text(folder / "cpu.cfs_period_us")
        if quota and period and quota not in ("max", "-1"):
            quotas.append(int(quota) / int(period))
    return quotas


def _group_memory() -> Iterator[tuple[int, int]]:
    for folder in _groups("memory"):
        for limit_file, usage_file, prefix in (
            ("memory.max", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            limit, usage = _text(folder / limit_file), _text(folder / usage_file)
            if limit and usage and limit != "max" and int(limit) < _UNLIMITED:
                lines = (_text(folder / "memory.stat") or "").splitlines()
                sizes = dict(line.split(" ", 1) for line in lines)
                lists = f"{prefix}inactive_file", f"{prefix}active_file"
                cached_bytes = sum(int(sizes.get(name, "0")) for name in lists)
                yield int(limit), max(0, int(usage) - cached_bytes)


def _groups(controller: str) -> Iterator[pathlib.Path]:
    for line in (_text(_MEMBERSHIP) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = _GROUPS / controllers if controllers else _GROUPS
        relative = pathlib.PurePosixPath(path.lstrip("/"))
        for inside in (relative, *relative.parents):
            # Inside a container the path is the host's and only the mount's root exists.
            if (mount / inside).is_dir():
                yield mount / inside


def _text(path: pathlib.Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
