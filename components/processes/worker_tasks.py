"""What each of several processes on this machine does that train together."""

import contextlib
import dataclasses
import socket
import types
from collections.abc import Mapping

from tfx_perf import workers
from tfx_perf.hardware import cpu_binding


@dataclasses.dataclass(frozen=True)
class Task:
    """What one of the processes does.

    Attributes:
        name: for people.
        label: what its lines of output begin with.
        environment: variables that it has beside those of this process.
        only_serves: whether it waits for what others ask of it, and gives heartbeats.
        may_be_lost: whether the others go on without it.
        cpus: that it is bound to; None: those of this process.
    """

    name: str
    label: str
    environment: Mapping[str, str]
    only_serves: bool = False
    may_be_lost: bool = False
    cpus: cpu_binding.Cpus | None = None


def tasks(
    *,
    worker_count: int,
    server_count: int = 0,
    environment: Mapping[str, str] = types.MappingProxyType({}),
    are_bound: bool = False,
) -> list[Task]:
    """Returns what processes that train together do.

    Args:
        worker_count: how many compute.
        server_count: how many hold the weights, for a coordinator, which comes first; 0: the
            workers do.
        environment: variables of all of them.
        are_bound: whether those that compute have CPUs to themselves.

    Raises:
        UserError: there are fewer CPUs than workers to be bound to them.
    """
    shares = cpu_binding.shares(worker_count) if are_bound else ()
    cpus = {workers.name_of("worker", index): share for index, share in enumerate(shares)}
    if not server_count:
        hosts = _free_hosts(worker_count)
        team = [workers.Worker(index, worker_count) for index in range(worker_count)]
        return [
            Task(
                name := workers.name_of("worker", worker.index),
                str(worker.index),
                {**environment, workers.VARIABLE: workers.config_of(worker, hosts=hosts)},
                cpus=cpus.get(name),
            )
            for worker in team
        ]
    servers = workers.ParameterServers(worker_count, server_count)
    hosts = _free_hosts(1 + worker_count + server_count)
    return [
        Task(
            name,
            name,
            {**environment, workers.VARIABLE: config},
            only_serves=workers.only_serves(config),
            may_be_lost=name.startswith("worker"),
            cpus=cpus.get(name),
        )
        for name, config in workers.served_configs(servers, hosts=hosts).items()
    ]


def _free_hosts(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:  # all at once, else two could be the same
        probes = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [f"localhost:{probe.getsockname()[1]}" for probe in probes]
