"""Which of the processes that train together a process is, by TensorFlow's own variable."""

import contextlib
import dataclasses
import json
import os
import socket
from collections.abc import Mapping, Sequence

from tfx_perf.core import errors

VARIABLE = "TF_CONFIG"
RESTART_FOLDER_VARIABLE = "TFX_PERF_RESTART_FOLDER"
"""Names a folder that workers find again when they are restarted after a failure."""

COORDINATOR = "chief"
"""The task that TensorFlow lets coordinate where there are parameter servers."""

_WORKER, _SERVER = "worker", "ps"
_NAMES = {_WORKER: "worker", _SERVER: "server"}


@dataclasses.dataclass(frozen=True)
class Worker:
    """One of the processes that train together; `index` counts from 0, TensorFlow's chief."""

    index: int
    count: int

    @property
    def is_chief(self) -> bool:
        """Whether this worker's model and figures are those of the training."""
        return self.index == 0


@dataclasses.dataclass(frozen=True)
class ParameterServers:
    """Processes that serve the one that trains: workers compute steps, servers hold the weights."""

    worker_count: int
    server_count: int


@dataclasses.dataclass(frozen=True)
class _Task:
    """The content of `TF_CONFIG`: `host:port` of all processes by kind, and which this one is."""

    hosts: Mapping[str, Sequence[str]]
    kind: str
    index: int

    @classmethod
    def of(cls, text: str) -> "_Task":
        """Returns the content of the text; ValueError if it makes no sense."""
        try:
            config = json.loads(text)
            cluster, task = config["cluster"], config["task"]
            hosts = {kind: list(cluster.get(kind) or []) for kind in (COORDINATOR, *_NAMES)}
            task_config = cls(hosts, task["type"], int(task["index"]))
            if not 0 <= task_config.index < len(cluster.get(task_config.kind) or []):
                raise IndexError(f"no {task_config.kind} {task_config.index}")
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(str(error)) from error
        return task_config

    @property
    def servers(self) -> ParameterServers | None:
        count = len(self.hosts[_SERVER])
        return ParameterServers(len(self.hosts[_WORKER]), count) if count else None

    @property
    def only_serves(self) -> bool:
        return self.servers is not None and self.kind != COORDINATOR

    @property
    def alike(self) -> list[str]:
        """`host:port` of the processes that train in the same way, a chief first."""
        return [*self.hosts[COORDINATOR], *self.hosts[_WORKER]]


def _task_of(text: str) -> _Task | None:
    with contextlib.suppress(ValueError):
        return _Task.of(text)
    return None


def _this_task() -> _Task | None:
    return _task_of(os.environ.get(VARIABLE, ""))


def worker_of(text: str) -> Worker:
    """Returns which worker a process is; with parameter servers, the one that trains is alone.

    `text` is the value of `TF_CONFIG`, with a cluster of chief and worker, or of chief, worker and
    ps. Raises UserError if it makes no sense, or if the process only serves.
    """
    try:
        task = _Task.of(text)
        if task.only_serves:
            raise ValueError(f"a {task.kind} beside parameter servers only serves")
        if task.servers:
            return Worker(index=0, count=1)
        if task.kind not in (COORDINATOR, _WORKER):
            raise ValueError(f"a {task.kind} does not train")
    except ValueError as error:
        raise errors.UserError(
            f"Expected {VARIABLE} with a cluster of chief and worker and a task of them. "
            f"Received: {VARIABLE}={text} ({error})."
        ) from error
    before = len(task.hosts[COORDINATOR]) if task.kind == _WORKER else 0
    return Worker(index=before + task.index, count=len(task.alike))


def this() -> Worker:
    """Returns which worker this process is; without `TF_CONFIG` the only one."""
    try:
        return worker_of(os.environ.get(VARIABLE, ""))
    except errors.UserError:
        return Worker(index=0, count=1)


def this_name() -> str:
    """Returns the name of this process for people; without `TF_CONFIG`, that of the only worker."""
    task = _this_task()
    return name_of(task.kind, task.index) if task else name_of(_WORKER, 0)


def these_hosts() -> list[str]:
    """Returns `host:port` of all workers, by their indices; empty without `TF_CONFIG`."""
    task = _this_task()
    return task.alike if task else []


def these_servers() -> ParameterServers | None:
    """Returns the processes that serve this one; None without parameter servers."""
    task = _this_task()
    return task.servers if task else None


def only_serves(text: str) -> bool:
    """Returns whether a process with this `TF_CONFIG` (maybe empty) only serves another one."""
    task = _task_of(text)
    return task is not None and task.only_serves


def restart_folder() -> str | None:
    """Returns the folder that this process finds again after a restart; None without restarts."""
    return os.environ.get(RESTART_FOLDER_VARIABLE)


def name_of(kind: str, index: int) -> str:
    """Returns the name, for people, of a process of a kind."""
    return "coordinator" if kind == COORDINATOR else f"{_NAMES[kind]} {index}"


def configs_of(hosts: Sequence[str], *, server_count: int = 0) -> dict[str, str]:
    """Returns the text of `TF_CONFIG` for each process by its name, given `host:port` of all.

    With parameter servers, which come last, the first process is the coordinator.
    """
    cluster = {_WORKER: list(hosts)}
    if server_count:
        first, last = hosts[:1], hosts[-server_count:]
        workers = hosts[1:-server_count]
        cluster = {COORDINATOR: list(first), _WORKER: list(workers), _SERVER: list(last)}
    return {
        name_of(kind, index): json.dumps(
            {"cluster": cluster, "task": {"type": kind, "index": index}}
        )
        for kind, addresses in cluster.items()
        for index in range(len(addresses))
    }


def names_of(worker_count: int, *, server_count: int) -> list[str]:
    """Returns the names of the processes that train together, in the order of `configs_of`."""
    count = _process_count(worker_count, server_count=server_count)
    return list(configs_of([""] * count, server_count=server_count))


def local_configs(worker_count: int, *, server_count: int = 0) -> dict[str, str]:
    """Returns `configs_of` processes on this machine, at ports that are free now."""
    count = _process_count(worker_count, server_count=server_count)
    with contextlib.ExitStack() as stack:  # at once, otherwise two could be the same
        probes = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        hosts = [f"localhost:{probe.getsockname()[1]}" for probe in probes]
    return configs_of(hosts, server_count=server_count)


def _process_count(worker_count: int, *, server_count: int) -> int:
    """Returns how many processes train together: parameter servers also need a coordinator."""
    return worker_count + (1 + server_count if server_count else 0)


def log_file(name: str) -> str:
    """Returns the name of the log file of the process of this name."""
    return f"{name.replace(' ', '-')}.log"
