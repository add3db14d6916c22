"""Trains in turns on this host, block by block, each training in processes of its own.

What makes one run slower than another on a shared host (its clock, its neighbours) then strikes
both, and cancels in the ratio of their step times.
"""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import IO, NamedTuple

import numpy as np

from tfx_perf import console, errors, statistics, workers
from tfx_perf.components.processes import child, worker_tasks
from tfx_perf.components.training_job import turns_job
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.hardware import core_shares
from tfx_perf.training.trials.equivalence import relative_difference

_TARGET = f"{turns_job.__name__}:{turns_job.train_in_turns.__name__}"
MIN_ROUNDS = 8
"""Of which an interval of the ratio is made, at the least."""
MAX_ROUNDS = 60
"""More hardly narrow it on a quiet host."""

_ENDING_SECONDS = 30.0
# The trainings share the GPUs, of which TensorFlow's processes take all memory otherwise.
_ENVIRONMENT = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


@dataclasses.dataclass(frozen=True)
class Trained:
    """What was seen of one training.

    Attributes:
        step_seconds: seconds per step of its blocks; the i-th of all followed each other.
        seconds: that its blocks took.
        losses: of each pass over the same batches, from the same weights, twice of the first
            training and once of the others; empty unless that was wanted.
    """

    step_seconds: list[float]
    seconds: float
    losses: list[list[float]]


def train(
    trainings: Mapping[str, TrainingJob],
    *,
    seconds: float,
    setting: str,
    log_folder: pathlib.Path,
    start_seconds: float = 0.0,
    decided: Callable[[list[list[float]]], bool] = lambda blocks: False,
    rounds: tuple[int, int | None] = (MIN_ROUNDS, MAX_ROUNDS),
    loss_passes: int = 0,
) -> list[Trained]:
    """Trains all in turns.

    Args:
        trainings: by name. With a job's plan goes its environment; with its workers on this
            machine, a process for each.
        seconds: how long it may take.
        setting: the name of what `seconds` is set with, for the error.
        log_folder: where the processes' output goes, by name and worker; made if it is not there.
        start_seconds: how long imports and compilation may take beside that.
        decided: whether further blocks would not change what is made of those before, asked as
            soon as there are `rounds[0]`.
        rounds: blocks of each training, at the least and, if the time allows, at the most; None:
            as many as the time allows.
        loss_passes: how often to train, before that, on the same few batches from the first
            one's weights, and compare the loss after each time; 0: not at all.

    Raises:
        MeasurementError: one of them failed, or the time was too short.
        UserError: one of them cannot be run.
    """
    console.set_status(f"training {' and '.join(trainings)} in turns")
    deadline = time.monotonic() + start_seconds + seconds
    log_folder.mkdir(parents=True, exist_ok=True)
    processes = [
        (name, process) for name, job in trainings.items() for process in _processes(name, job)
    ]
    # Alike for all, so that what is compared differs in nothing else. The variables of a plan are
    # those that TensorFlow reads when it is imported.
    from_server = not any(job.plan.environment for job in trainings.values())
    with (
        tempfile.TemporaryDirectory() as folder,
        futures.ThreadPoolExecutor(max_workers=len(processes)) as pool,
        socket.socket(socket.AF_UNIX) as server,
        contextlib.ExitStack() as connections,
        # Whatever comes of it, all end with this: workers may wait for one that has ended.
        contextlib.ExitStack() as children,
    ):
        address = str(pathlib.Path(folder, "socket"))
        server.bind(address)
        server.listen()
        running = []
        for name, process in processes:
            job = trainings[name]
            started = child.started(
                _TARGET,
                {
                    "job": job.model_dump(mode="json"),
                    "address": address,
                    "name": name,
                    "folder": folder,
                    "is_first": name == next(iter(trainings)),
                    "loss_passes": loss_passes,
                },
                log_path=log_folder / process.log_name,
                environment={**_ENVIRONMENT, **job.plan.environment, **process.environment},
                from_server=from_server,
                cpus=process.cpus,
            )
            each = children.enter_context(started)
            seconds_left = _left(deadline) + _ENDING_SECONDS
            running.append(pool.submit(each.result, timeout_seconds=seconds_left))
        streams, losses = {}, {}
        try:
            for _ in trainings:
                stream = connections.enter_context(_accepted(server, running, deadline=deadline))
                name, losses_found = json.loads(_line(stream, running))
                streams[name], losses[name] = stream, losses_found
            deadline = min(deadline, time.monotonic() + seconds)
            in_order = [streams[name] for name in trainings]
            blocks = _in_turns(
                in_order, running, deadline=deadline, decided=decided, rounds=rounds
            )
        except TimeoutError as error:
            raise errors.MeasurementError(
                f"{seconds:g} s were too short to train in turns; raise {setting}"
            ) from error
    return [
        Trained(steps, seconds, losses[name])
        for name, (steps, seconds) in zip(trainings, blocks, strict=True)
    ]


class _Process(NamedTuple):
    """One of those that train together.

    Attributes:
        log_name: of the file for its output.
        environment: variables that tell it which one it is.
        cpus: that it is bound to; None: all.
    """

    log_name: str
    environment: Mapping[str, str]
    cpus: core_shares.Cpus | None


def _processes(name: str, job: TrainingJob) -> list[_Process]:
    distribution = job.settings.distribution
    if distribution.workers_here == 1:
        return [_Process(f"{name}.log", {}, None)]
    tasks = worker_tasks.tasks(
        worker_count=distribution.workers_here, cpu_binding=distribution.cpu_binding
    )
    return [
        _Process(f"{name}-{workers.log_file(task.name)}", task.environment, task.cpus)
        for task in tasks
    ]


def settled_at(margin: float) -> Callable[[list[list[float]]], bool]:
    """Returns what tells whether further blocks would change if the second training gains enough.

    Args:
        margin: by how much it has to be faster than the first.
    """

    def decided(blocks: list[list[float]]) -> bool:
        ratio = statistics.ratio_interval(*blocks)
        return not ratio.low <= 1 + margin <= ratio.high

    return decided


def loss_difference(first: Trained, other: Trained, *, tolerance: float) -> str | None:
    """Returns how the losses differ, in words; None if that is no more than is allowed.

    Args:
        first: whose losses were compared, too.
        other: of another training in these turns.
        tolerance: relative, beside what the first differs from itself by.
    """
    start, again = first.losses
    difference, spread = (
        # Not max(): it would pass NaN over.
        float(np.max([relative_difference(*pair) for pair in zip(losses, start, strict=True)]))
        for losses in (*other.losses, again)
    )
    allowed = tolerance + 2 * spread
    if difference <= allowed:  # not if it is NaN
        return None
    return f"loss differs by {difference:.1%}, allowed {allowed:.1%}"


def _accepted(
    server: socket.socket, running: Sequence[futures.Future], *, deadline: float
) -> IO[str]:
    server.settimeout(0.5)
    while time.monotonic() < deadline:
        _raise_errors(running)
        with contextlib.suppress(TimeoutError):
            connection, _ = server.accept()
            connection.settimeout(_left(deadline))
            with connection:  # what is left of it is the stream
                return connection.makefile("rw")
    raise TimeoutError


def _in_turns(
    streams: Sequence[IO[str]],
    running: Sequence[futures.Future],
    *,
    deadline: float,
    decided: Callable[[list[list[float]]], bool],
    rounds: tuple[int, int | None],
) -> list[tuple[list[float], float]]:
    """Returns of each stream the seconds per step of its blocks, and what these took."""
    found: list[list[float]] = [[] for _ in streams]
    spent_seconds = [0.0 for _ in streams]
    fewest, most = rounds
    for count in itertools.count():
        is_enough = count == most or (count >= fewest and decided(found))
        if is_enough or time.monotonic() > deadline:
            break
        # What a training leaves running when its block ends strikes each of them as often.
        order = range(len(streams)) if count % 2 == 0 else reversed(range(len(streams)))
        blocks = {}
        try:
            for index in order:
                stream = streams[index]
                began = time.monotonic()
                with contextlib.suppress(OSError):  # it has ended; reading says why
                    stream.write(turns_job.GO)
                    stream.flush()
                blocks[index] = float(_line(stream, running))
                spent_seconds[index] += time.monotonic() - began
        except TimeoutError:  # the rounds before may be enough
            break
        for index, seconds in blocks.items():
            found[index].append(seconds)
    if len(found[0]) < MIN_ROUNDS:
        raise TimeoutError
    return list(zip(found, spent_seconds, strict=True))


def _line(stream: IO[str], running: Sequence[futures.Future]) -> str:
    try:
        line = stream.readline()
    except TimeoutError:
        raise
    except OSError:
        line = ""
    if not line:
        futures.wait(running, return_when=futures.FIRST_COMPLETED)
        _raise_errors(running)
        raise errors.MeasurementError("A training ended before it was told to.")
    return line.strip()


def _raise_errors(running: Sequence[futures.Future]) -> None:
    """Raises what a training has ended with; one that has lost another worker is not the cause."""
    found = [training.exception() for training in running if training.done()]
    failed = [error for error in found if error is not None]
    causes = [error for error in failed if not getattr(error, "may_pass", False)]
    if failed:
        raise (causes or failed)[0]


def _left(deadline: float) -> float:
    return max(1.0, deadline - time.monotonic())
