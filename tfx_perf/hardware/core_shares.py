"""Which CPUs each of several processes on this machine has to itself.

Linux' folders and their meaning: https://docs.kernel.org/admin-guide/cputopology.html and
https://docs.kernel.org/admin-guide/mm/numaperf.html. A CPU is what the kernel schedules on, a
hardware thread; a core has one or several.
"""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

from tfx_perf import errors
from tfx_perf.hardware import host

Cpus = frozenset[int]

_SYSTEM = pathlib.Path("/sys/devices/system")
# On one NUMA node it takes so many cores for two workers to be worth trying.
_CORES_FOR_TWO = 4


@dataclasses.dataclass(frozen=True)
class Topology:
    """The processor, as far as a process may use it.

    Attributes:
        nodes: the CPUs of each NUMA node that has some; a machine without NUMA is one node.
        cores: those of each physical core, node by node.
    """

    nodes: Sequence[Cpus]
    cores: Sequence[Cpus]

    def shares(self, count: int) -> list[Cpus]:
        """Returns the CPUs of each of so many processes, which no two of them share.

        They are whole NUMA nodes if these can be divided evenly; else whole cores next to each
        other, as many for each as for the others, give or take one; or single CPUs where there are
        fewer cores than processes.

        Raises:
            UserError: there are fewer CPUs than processes.
        """
        divisible = self.nodes if len(self.nodes) % count == 0 else ()
        cpus = [frozenset({cpu}) for core in self.cores for cpu in sorted(core)]
        for units in (divisible, self.cores, cpus):
            if len(units) >= count:
                ends = [len(units) * index // count for index in range(count + 1)]
                return [
                    frozenset().union(*units[begin:end])
                    for begin, end in zip(ends, ends[1:], strict=False)
                ]
        raise errors.UserError(
            f"Expected a CPU for each worker. Received: cpu_binding=exclusive, {count} workers and "
            f"{len(cpus)} CPUs. Start fewer workers, or leave cpu_binding out."
        )

    def worker_count(self, *, cpu_count: int) -> int:
        """Returns how many bound workers may be faster than one process; 1 if none are hoped to be.

        One for each NUMA node, so that each has its memory near; two on one node with cores enough.

        Args:
            cpu_count: what a container's quota allows, too.
        """
        if len(self.nodes) > 1:
            return len(self.nodes)
        return 2 if min(len(self.cores), cpu_count) >= _CORES_FOR_TWO else 1


def topology(folder: pathlib.Path, *, usable: Cpus) -> Topology:
    """Returns what Linux tells of the processor.

    Args:
        folder: with the folders `cpu` and `node`; without the latter, all is one node.
        usable: the CPUs that a process may run on, all of them online.
    """
    files = sorted((folder / "node").glob("node*/cpulist"), key=_number)
    nodes = [found for file in files if (found := _listed(file) & usable)]
    if frozenset().union(*nodes) != usable:
        nodes = [usable]
    cores = [
        core
        for node in nodes
        for core in sorted({_siblings(folder, cpu) & node for cpu in node}, key=min)
    ]
    return Topology(nodes=tuple(nodes), cores=tuple(cores))


def here() -> Topology:
    """Returns the processor as far as this process may use it."""
    return topology(_SYSTEM, usable=frozenset(os.sched_getaffinity(0)))


def worth_trying() -> int:
    """Returns how many bound workers may be faster here than one process; see `Topology`."""
    return here().worker_count(cpu_count=host.cpu_count())


def in_words(cpus: Cpus) -> str:
    """Returns a list of CPUs as Linux writes it, e.g. `0-3,8`."""
    parts: list[tuple[int, int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], cpu)
        else:
            parts.append((cpu, cpu))
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in parts)


def _siblings(folder: pathlib.Path, cpu: int) -> Cpus:
    """Returns the CPUs of a CPU's core."""
    return _listed(folder / f"cpu/cpu{cpu}/topology/thread_siblings_list") or frozenset({cpu})


def _listed(file: pathlib.Path) -> Cpus:
    """Returns the CPUs in a file such as `0-3,8`; none if it is not there."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return frozenset()
    ranges = (part.partition("-") for part in text.split(",") if part)
    return frozenset(
        cpu for low, _, high in ranges for cpu in range(int(low), int(high or low) + 1)
    )


def _number(file: pathlib.Path) -> int:
    return int(file.parent.name.removeprefix("node"))
