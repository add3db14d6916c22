"""Which of several processes a process is, by TensorFlow's own variable."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tfx_perf.core import errors

VARIABLE = "TF_CONFIG"
RESTART_FOLDER_VARIABLE = "TFX_PERF_RESTART_FOLDER"
"""Names a folder that the workers find again where they are started again after a failure."""

COORDINATOR = "chief"
"""The task that TensorFlow lets coordinate where there are parameter servers."""

_SERVER = "ps"
_NAMES = {"worker": "worker", _SERVER: "server"}


@dataclasses.dataclass(frozen=True)
class Worker:
    """One of the processes that train together.

    Attributes:
        index: from 0; the first one is TensorFlow's chief.
        count: how many there are.
    """

    index: int
    count: int

    @property
    def is_chief(self) -> bool:
        """Whether its model and its figures are the training's."""
        return self.index == 0


@dataclasses.dataclass(frozen=True)
class ParameterServers:
    """Processes that only serve: the one that trains with them is none of them.

    Attributes:
        worker_count: how many compute steps.
        server_count: how many hold the weights.
    """

    worker_count: int
    server_count: int


def worker_of(text: str) -> Worker:
    """Returns which worker a process is; with parameter servers, the one that trains is alone.

    Args:
        text: of `TF_CONFIG`, with a cluster of chief and worker, or of chief, worker and ps.

    Raises:
        UserError: it makes no sense, or the process only serves.
    """
    try:
        cluster, kind, index = _parsed(text)
        chiefs, workers = cluster.get(COORDINATOR) or [], cluster.get("worker") or []
        if cluster.get(_SERVER):
            if kind != COORDINATOR:
                raise ValueError(f"a {kind} beside parameter servers only serves")
            return Worker(index=0, count=1)
        place = {COORDINATOR: index, "worker": len(chiefs) + index}[kind]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise errors.UserError(
            f"Expected {VARIABLE} with a cluster of chief and worker and a task of them. "
            f"Received: {VARIABLE}={text} ({error})."
        ) from error
    return Worker(index=place, count=len(chiefs) + len(workers))


def these_hosts() -> list[str]:
    """Returns `host:port` of all workers, by their indices; empty without `TF_CONFIG`."""
    try:
        cluster, _, _ = _parsed(os.environ.get(VARIABLE, ""))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return []
    return [*(cluster.get(COORDINATOR) or []), *(cluster.get("worker") or [])]


def parameter_servers_of(text: str) -> ParameterServers | None:
    """Returns what serves the process that trains; None if there are no parameter servers.

    Args:
        text: of `TF_CONFIG`, or none.
    """
    try:
        cluster, _, _ = _parsed(text)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
    if not cluster.get(_SERVER):
        return None
    return ParameterServers(len(cluster.get("worker") or []), len(cluster[_SERVER]))


def only_serves(text: str) -> bool:
    """Returns whether a process serves another one that trains, and does nothing else.

    Args:
        text: of `TF_CONFIG`, or none.
    """
    return parameter_servers_of(text) is not None and _parsed(text)[1] != COORDINATOR


def this() -> Worker:
    """Returns which worker this process is; without `TF_CONFIG` the only one."""
    try:
        return worker_of(os.environ.get(VARIABLE, ""))
    except errors.UserError:
        return Worker(index=0, count=1)


def restart_folder() -> str | None:
    """Returns what this process finds again after a restart; None if nobody would start it."""
    return os.environ.get(RESTART_FOLDER_VARIABLE)


def config_of(worker: Worker, *, hosts: Sequence[str]) -> str:
    """Returns the text of `TF_CONFIG` for a worker.

    Args:
        worker: which one.
        hosts: `host:port` of all.
    """
    task = {"type": "worker", "index": worker.index}
    return json.dumps({"cluster": {"worker": list(hosts)}, "task": task})


def these_servers() -> ParameterServers | None:
    """Returns what serves this process; None if it has no parameter servers."""
    return parameter_servers_of(os.environ.get(VARIABLE, ""))


def name_of(kind: str, index: int) -> str:
    """Returns how people know a process.

    Args:
        kind: of its task.
        index: of those of this kind.
    """
    return "coordinator" if kind == COORDINATOR else f"{_NAMES[kind]} {index}"


def names_of(worker_count: int, servers: ParameterServers | None) -> list[str]:
    """Returns how people know the processes that train together, in their order.

    Args:
        worker_count: how many compute.
        servers: what serves the coordinator, which comes first; None: there is none.
    """
    names = [name_of("worker", index) for index in range(worker_count)]
    if servers is None:
        return names
    holding = [name_of(_SERVER, index) for index in range(servers.server_count)]
    return [name_of(COORDINATOR, 0), *names, *holding]


def log_file(name: str) -> str:
    """Returns the name of the file with what a process has said.

    Args:
        name: from `name_of`.
    """
    return f"{name.replace(' ', '-')}.log"


def served_configs(servers: ParameterServers, *, hosts: Sequence[str]) -> dict[str, str]:
    """Returns the text of `TF_CONFIG` of each process, by its name.

    Args:
        servers: how many there are.
        hosts: `host:port` of all, in the order of `names_of`.
    """
    first_server = 1 + servers.worker_count
    cluster = {
        COORDINATOR: list(hosts[:1]),
        "worker": list(hosts[1:first_server]),
        _SERVER: list(hosts[first_server:]),
    }
    return {
        name_of(kind, index): json.dumps(
            {"cluster": cluster, "task": {"type": kind, "index": index}}
        )
        for kind, found in cluster.items()
        for index in range(len(found))
    }


def _parsed(text: str) -> tuple[Mapping[str, Any], str, int]:
    """Returns cluster, kind of task and its index.

    Raises:
        Exception: it makes no sense; one of many classes.
    """
    config = json.loads(text)
    cluster, task = config["cluster"], config["task"]
    kind, index = task["type"], int(task["index"])
    if len(cluster.get(kind) or []) <= index or index < 0:
        raise IndexError(f"no {kind} {index}")
    return cluster, kind, index
