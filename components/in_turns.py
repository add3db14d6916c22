"""Runs trainings in turns on this host, block by block, each in separate processes.

Anything that slows down a shared host (its clock, its neighbors) then affects all trainings and
cancels in the ratio of their step times. The children send lines over a Unix socket: first, once
everything is compiled, a JSON list of the name and the losses; then, for each `go`, the median
seconds per step of a block. The first of several workers answers for all of them.
"""

import contextlib
import itertools
import json
import pathlib
import socket
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import IO, Any

import numpy as np
import tensorflow as tf

from tfx_perf import isolate
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import console, errors, workers
from tfx_perf.core.interception import FitCall
from tfx_perf.tf_internals import autograph, datasets
from tfx_perf.training.loop.eligibility import obstacle
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.loop.turns import Turn
from tfx_perf.training.replicas.sync import Sync
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning import families
from tfx_perf.training.tuning.processes import Trained

MIN_ROUNDS = 8
"""The fewest blocks of each training from which an interval of the ratio is computed."""
MAX_ROUNDS = 60
"""More blocks of each training hardly narrow the interval on a quiet host."""

_GO = "go\n"
_ENDING_SECONDS = 30.0
# The trainings share the GPUs; by default, a TensorFlow process takes all of their memory.
_ENVIRONMENT = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
_START_STEPS = 10
# The first training repeats its loss passes, to show by how much it differs from itself.
_FIRST_REPETITIONS = 2
_POLL_SECONDS = 0.1
# Each worker takes its share of the same batches, however many files they are in.
_BY_ROWS = tf.data.Options()
_BY_ROWS.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA

_Decided = Callable[[list[list[float]]], bool]


def train(
    trainings: Mapping[str, TrainingJob],
    *,
    seconds: float,
    setting: str,
    log_folder: pathlib.Path,
    start_seconds: float = 0.0,
    decided: _Decided,
    rounds: tuple[int, int | None] = (MIN_ROUNDS, MAX_ROUNDS),
    loss_passes: int = 0,
) -> list[Trained]:
    """Trains all in turns; raises a `MeasurementError` if one failed or the time was too short.

    Args:
        trainings: jobs by name. Each runs with the environment of its plan, and with a process for
            each of its workers on this machine.
        seconds: how long the blocks may take.
        setting: the name of the setting behind `seconds`, for the error.
        log_folder: gets the processes' output, by name and worker; created if missing.
        start_seconds: how long imports and compilation may take in addition.
        decided: whether the blocks so far settle the conclusion; called after each round from
            `rounds[0]` on.
        rounds: the fewest and the most blocks of each training; None: as many as the time allows.
        loss_passes: how many passes to train first over the same few batches, from the first
            training's weights, recording the loss of each pass; 0: none.
    """
    most = f"at most {seconds:.0f} s ({setting})"
    console.set_status(f"training {len(trainings)} variants again, in turns, for {most}")
    deadline = time.monotonic() + start_seconds + seconds
    log_folder.mkdir(parents=True, exist_ok=True)
    # The same for all, so that nothing else differs between them. TensorFlow reads a plan's
    # variables when it is imported, which has already happened in a fork.
    is_forked = not any(job.plan.environment for job in trainings.values())
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX) as server,
        contextlib.ExitStack() as connections,
        # Ends all children in any case: workers may be waiting for one that has ended.
        contextlib.ExitStack() as until,
    ):
        address = str(pathlib.Path(folder, "socket"))
        server.bind(address)
        server.listen()
        children = [
            until.enter_context(
                isolate.started(
                    f"{__name__}:{train_in_turns.__name__}",
                    {
                        "job": job.model_dump(mode="json"),
                        "address": address,
                        "name": name,
                        "folder": folder,
                        "is_first": name == next(iter(trainings)),
                        "loss_passes": loss_passes,
                    },
                    log_path=log_folder / log_name,
                    environment={**_ENVIRONMENT, **job.plan.environment, **environment},
                    is_forked=is_forked,
                )
            )
            for name, job in trainings.items()
            for log_name, environment in _environments(name, job).items()
        ]
        streams, losses = {}, {}
        try:
            for _ in trainings:
                stream = connections.enter_context(_accept(server, children, deadline=deadline))
                name, losses_found = json.loads(_read_line(stream, children))
                streams[name], losses[name] = stream, losses_found
            deadline = min(deadline, time.monotonic() + seconds)
            in_order = [streams[name] for name in trainings]
            blocks = _blocks_in_turns(
                in_order, children, deadline=deadline, decided=decided, rounds=rounds
            )
        except TimeoutError as error:
            raise errors.MeasurementError(
                f"{seconds:g} s were too short to train in turns; raise {setting}"
            ) from error
    return [
        Trained(steps, seconds, losses[name])
        for name, (steps, seconds) in zip(trainings, blocks, strict=True)
    ]


def _environments(name: str, job: TrainingJob) -> dict[str, Mapping[str, str]]:
    count = job.settings.distribution.workers_here
    if count == 1:
        return {f"{name}.log": {}}
    return {
        f"{name}-{workers.log_file(worker)}": {workers.VARIABLE: config}
        for worker, config in workers.local_configs(count).items()
    }


def _accept(
    server: socket.socket, children: Sequence[isolate.Child], *, deadline: float
) -> IO[str]:
    server.settimeout(0.5)
    while time.monotonic() < deadline:
        _raise_errors(children)
        with contextlib.suppress(TimeoutError):
            connection, _ = server.accept()
            connection.settimeout(max(1.0, deadline - time.monotonic()))
            with connection:  # the stream keeps it open
                return connection.makefile("rw")
    raise TimeoutError


def _blocks_in_turns(
    streams: Sequence[IO[str]],
    children: Sequence[isolate.Child],
    *,
    deadline: float,
    decided: _Decided,
    rounds: tuple[int, int | None],
) -> list[tuple[list[float], float]]:
    """Returns each stream's seconds per step by block, and how many seconds its blocks took."""
    block_seconds: list[list[float]] = [[] for _ in streams]
    spent_seconds = [0.0 for _ in streams]
    fewest, most = rounds
    for count in itertools.count():
        is_enough = count == most or (count >= fewest and decided(block_seconds))
        if is_enough or time.monotonic() > deadline:
            break
        # Alternates, so that work left running after a block slows each training equally often.
        order = range(len(streams)) if count % 2 == 0 else reversed(range(len(streams)))
        blocks = {}
        try:
            for index in order:
                stream = streams[index]
                began = time.monotonic()
                with contextlib.suppress(OSError):  # it has ended; reading says why
                    _send(stream, _GO)
                blocks[index] = float(_read_line(stream, children))
                spent_seconds[index] += time.monotonic() - began
        except TimeoutError:  # the rounds before may be enough
            break
        for index, seconds in blocks.items():
            block_seconds[index].append(seconds)
    if len(block_seconds[0]) < MIN_ROUNDS:
        raise TimeoutError
    return list(zip(block_seconds, spent_seconds, strict=True))


def _read_line(stream: IO[str], children: Sequence[isolate.Child]) -> str:
    try:
        line = stream.readline()
    except TimeoutError:
        raise
    except OSError:
        line = ""
    if not line:
        deadline = time.monotonic() + _ENDING_SECONDS
        while time.monotonic() < deadline and all(child.poll() is None for child in children):
            time.sleep(_POLL_SECONDS)
        _raise_errors(children)
        raise errors.MeasurementError("A training ended early.")
    return line.strip()


def _send(stream: IO[str], line: str) -> None:
    stream.write(line)
    stream.flush()


def _raise_errors(children: Sequence[isolate.Child]) -> None:
    """Raises the error that ended a training, rather than that of a worker that lost a peer."""
    failed: list[Exception] = []
    for child in children:
        if child.poll() is not None:
            try:
                child.result(timeout_seconds=None)
            except (errors.ChildError, errors.UserError) as error:
                failed.append(error)
    causes = [error for error in failed if not getattr(error, "may_pass", False)]
    if failed:
        raise (causes or failed)[0]


@autograph.sparing_libraries
def train_in_turns(
    *, job: dict[str, Any], address: str, name: str, folder: str, is_first: bool, loss_passes: int
) -> None:
    """Trains a block for each `go` on a socket, from weights in `folder`; runs in a child."""
    training = TrainingJob.model_validate(job)

    def take_turns(call: FitCall) -> None:
        loop = FitLoop(call)
        reason = obstacle(call, loop)
        plan, settings = training.plan, training.settings
        if families.must_be_exact(settings) and families.allowed(plan, settings) != plan:
            reason = "a training that must be reproducible bit for bit"
        if reason:
            raise errors.UserError(f"Expected a training in steps of its own. Received: {reason}.")
        data = datasets.without_autotune(call.arguments["x"].repeat())
        sync = loop.sync
        losses: list[list[float]] = []
        if loss_passes:
            start = _Start(call, loop, folder=pathlib.Path(folder))
            if is_first and sync.is_chief:
                start.write(data)
            losses = [
                start.losses(training.plan, passes=loss_passes)
                for _ in range(_FIRST_REPETITIONS if is_first else 1)
            ]

        def connected() -> IO[str]:
            connection.connect(address)
            stream = connection.makefile("rw")
            _send(stream, json.dumps([name, losses]) + "\n")
            return stream

        loop.take_turns(_blocks(loop.turn(training.plan), sync=sync, connected=connected), data)

    with socket.socket(socket.AF_UNIX) as connection:
        training.run_to_fit(take_turns, folder=folder)


def _blocks(
    turn: Turn, *, sync: Sync, connected: Callable[[], IO[str]]
) -> Generator[Turn, float, None]:
    yield turn  # compiles, and fills the input's buffers
    if not sync.is_chief:
        while sync.broadcast(False):
            yield turn
        return
    with connected() as lines:  # only after tracing, which may run everything before it twice
        while sync.broadcast(lines.readline() == _GO):
            _send(lines, f"{(yield turn)!r}\n")


class _Start:
    """Weights and batches that several processes start from."""

    def __init__(self, call: FitCall, loop: FitLoop, *, folder: pathlib.Path) -> None:
        loop.prepare()
        self._state = loop.keras_api.state(call.model)
        # Without optimizers, since loss scaling may wrap them; all of them start fresh.
        self._shared = call.model.variables
        self._loop = loop
        self._weights, self._data = folder / "weights.npz", str(folder / "batches")

    def write(self, data: tf.data.Dataset) -> None:
        data.take(_START_STEPS).save(self._data)
        draft = self._weights.with_suffix(".draft.npz")
        np.savez(draft, *(variable.numpy() for variable in self._shared))
        draft.rename(self._weights)  # the other processes wait for it

    def losses(self, plan: TrainingPlan, *, passes: int) -> list[float]:
        """Returns the loss of each pass over the same few batches."""
        while not self._weights.exists():  # the parent ends this process if it never appears
            time.sleep(_POLL_SECONDS)
        with np.load(self._weights) as file:
            weights = [file[name] for name in file.files]
        before = [variable.numpy() for variable in self._state]
        _assign(self._shared, weights)
        data = datasets.without_autotune(tf.data.Dataset.load(self._data).repeat(passes))
        if plan.steps_per_execution:
            steps = min(plan.steps_per_execution, _START_STEPS // 2)
            plan = plan.model_copy(update={"steps_per_execution": steps})
        ended = self._loop.try_out(
            plan, data.with_options(_BY_ROWS), step_count=_START_STEPS, epochs=passes
        )
        _assign(self._state, before)
        return [float(loss) for loss in ended.history.history["loss"]]


def _assign(variables: Iterable[tf.Variable], values: Iterable[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
