"""What a container lets this process use, from Linux control groups version 1 and 2.

Files and their meaning: https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

import pathlib
from collections.abc import Iterator

_MOUNT = pathlib.Path("/sys/fs/cgroup")
_MEMBERSHIP = pathlib.Path("/proc/self/cgroup")
_UNLIMITED = 2**62  # version 1 says "no limit" with the largest number of whole pages


def memory_limits_bytes() -> list[int]:
    """Returns the memory limit of every group around this process that sets one."""
    return [limit for limit, _ in _memory()]


def memory_left_bytes() -> list[int]:
    """Returns what each limiting group has left.

    Page cache counts as free, whether it was touched lately or not: the kernel gives it up before
    it kills anything. What is kept in `/dev/shm` or a tmpfs is none of that.
    """
    return [max(0, limit - used) for limit, used in _memory()]


def cpu_quotas() -> list[float]:
    """Returns the CPU time per wall time of every group that limits it, e.g. 1.5."""
    quotas = []
    for folder in _groups("cpu"):
        both = _text(folder / "cpu.max")  # version 2: quota and period in one file
        quota = both.split()[0] if both else _text(folder / "cpu.cfs_quota_us")
        period = both.split()[1] if both else _text(folder / "cpu.cfs_period_us")
        if quota and period and quota not in ("max", "-1"):
            quotas.append(int(quota) / int(period))
    return quotas


def _memory() -> Iterator[tuple[int, int]]:
    """Yields limit and use in bytes of every limiting group."""
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
    """Yields the folders of the process's group and of the groups around it."""
    for line in (_text(_MEMBERSHIP) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = _MOUNT / controllers if controllers else _MOUNT
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
