"""Trains in turns on this host, block by block, each training in processes of its own.

Whatever slows a run down on a shared host (its clock, its neighbours) then affects both trainings
and cancels in the ratio of their step times. The children answer in lines over a Unix socket:
first, once all is compiled, a JSON list of the name and the losses; then, for each `go`, the median
seconds per step of a block. The first of several workers speaks for all.
"""

import contextlib
import functools
import itertools
import json
import pathlib
import socket
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent import futures
from typing import IO, Any

import numpy as np
import tensorflow as tf

from tfx_perf import isolate
from tfx_perf.components import trainer_args, training_job
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import console, errors, interception, workers
from tfx_perf.tf_internals import autograph, datasets
from tfx_perf.training.keras_api import array_data
from tfx_perf.training.loop import Loop
from tfx_perf.training.loop.eligibility import obstacle
from tfx_perf.training.loop.turns import Turn
from tfx_perf.training.optimizations import precision
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.replicas.sync import Sync
from tfx_perf.training.session import as_one_device, built_under
from tfx_perf.training.trials.processes import Trained

MIN_ROUNDS = 8
"""Of which an interval of the ratio is made, at the least."""
MAX_ROUNDS = 60
"""More hardly narrow it on a quiet host."""

_GO = "go\n"
_ENDING_SECONDS = 30.0
# The trainings share the GPUs, of which TensorFlow's processes take all memory otherwise.
_ENVIRONMENT = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
_START_STEPS = 10
# The first one tells by how much a training differs from itself.
_FIRST_REPETITIONS = 2
_POLL_SECONDS = 0.1
# Each worker takes its part of the same batches, however many files they are in.
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
        trainings: by name. Each runs with the environment of its job's plan, and with a process for
            each of its workers on this machine.
        seconds: how long the blocks may take.
        setting: the name of the setting behind `seconds`, for the error.
        log_folder: gets the processes' output, by name and worker; made if it is not there.
        start_seconds: how long imports and compilation may take beside that.
        decided: whether further blocks would not change the conclusion from those before; asked as
            soon as there are `rounds[0]`.
        rounds: the fewest and the most blocks of each training; None: as many as the time allows.
        loss_passes: how often to train first on the same few batches from the first training's
            weights, comparing the loss after each time; 0: not at all.
    """
    console.set_status(f"training in {len(trainings)} ways in turns, for at most {seconds:.0f} s")
    deadline = time.monotonic() + start_seconds + seconds
    log_folder.mkdir(parents=True, exist_ok=True)
    processes = [
        (name, *process)
        for name, job in trainings.items()
        for process in _environments(name, job).items()
    ]
    # Alike for all, so that what is compared differs in nothing else. The variables of a plan are
    # those that TensorFlow reads when it is imported.
    is_forked = not any(job.plan.environment for job in trainings.values())
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
        for name, log_name, environment in processes:
            job = trainings[name]
            started = isolate.started(
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
            blocks = _blocks_in_turns(
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


def _environments(name: str, job: TrainingJob) -> dict[str, Mapping[str, str]]:
    """Returns the variables of each process of a training, by the name of its log."""
    count = job.settings.distribution.workers_here
    if count == 1:
        return {f"{name}.log": {}}
    return {
        f"{name}-{workers.log_file(worker)}": {workers.VARIABLE: config}
        for worker, config in workers.local_configs(count).items()
    }


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


def _blocks_in_turns(
    streams: Sequence[IO[str]],
    running: Sequence[futures.Future],
    *,
    deadline: float,
    decided: _Decided,
    rounds: tuple[int, int | None],
) -> list[tuple[list[float], float]]:
    """Returns each stream's seconds per step by block, and how many seconds its blocks took."""
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
                    _send(stream, _GO)
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


def _send(stream: IO[str], line: str) -> None:
    stream.write(line)
    stream.flush()


def _raise_errors(running: Sequence[futures.Future]) -> None:
    """Raises the error that ended a training; a worker that lost another one is not the cause."""
    found = [training.exception() for training in running if training.done()]
    failed = [error for error in found if error is not None]
    causes = [error for error in failed if not getattr(error, "may_pass", False)]
    if failed:
        raise (causes or failed)[0]


def _left(deadline: float) -> float:
    return max(1.0, deadline - time.monotonic())


@autograph.sparing_libraries
def train_in_turns(
    *,
    job: dict[str, Any],
    address: str,
    name: str,
    folder: str,
    is_first: bool,
    loss_passes: int,
) -> None:
    """Trains a block for each `go` on a socket, from weights in `folder`; runs in a child."""
    training = TrainingJob.model_validate(job)
    distribution = training.settings.distribution
    worker_count = distribution.workers_here
    if worker_count > 1:
        from tfx_perf.distribute import worker_server

        worker_server.start()
    run_fn = trainer_args.load_run_fn(training.exec_properties)

    def answer(call: interception.FitCall) -> None:
        with as_one_device(array_data.on_datasets(call), distribution) as (found, _):
            take_turns(found)

    def take_turns(call: interception.FitCall) -> None:
        loop = Loop(call)
        reason = obstacle(call, loop)
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

    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        stack.enter_context(precision.policy(training.precision))
        fit: Callable[[interception.FitCall], Any] = answer
        if worker_count > 1:
            fit = stack.enter_context(training_job.for_all_workers(distribution))(answer)
        outside = stack.enter_context(built_under(distribution))
        arguments = trainer_args.fn_args(
            training.input_dict,
            trainer_args.outputs_in(tempfile.mkdtemp(dir=folder)),
            training.exec_properties,
            worker_count=worker_count,
        )
        interception.capture_fit(functools.partial(run_fn, arguments), outside(fit))


def _blocks(
    turn: Turn, *, sync: Sync, connected: Callable[[], IO[str]]
) -> Generator[Turn, float, None]:
    yield turn  # compiles, and fills the input's buffers
    if not sync.is_chief:
        while sync.broadcast(False):
            yield turn
        return
    with connected() as lines:  # once it is traced, for which all of this may be run twice
        while sync.broadcast(lines.readline() == _GO):
            _send(lines, f"{(yield turn)!r}\n")


class _Start:
    """Weights and batches that several processes begin with."""

    def __init__(self, call: interception.FitCall, loop: Loop, *, folder: pathlib.Path) -> None:
        loop.prepare()
        self._state = loop.keras_api.state(call.model)
        # An optimizer may be wrapped in one that scales the loss; all begin as new ones.
        self._shared = call.model.variables
        self._loop = loop
        self._weights, self._data = folder / "weights.npz", str(folder / "batches")

    def write(self, data: tf.data.Dataset) -> None:
        data.take(_START_STEPS).save(self._data)
        draft = self._weights.with_suffix(".draft.npz")
        np.savez(draft, *(variable.numpy() for variable in self._shared))
        draft.rename(self._weights)  # it is looked for

    def losses(self, plan: TrainingPlan, *, passes: int) -> list[float]:
        """Returns the loss of each pass over the same few batches."""
        while not self._weights.exists():  # whoever asked ends this process if it never comes
            time.sleep(_POLL_SECONDS)
        with np.load(self._weights) as file:
            weights = [file[name] for name in file.files]
        before = [variable.numpy() for variable in self._state]
        _assign(self._shared, weights)
        data = datasets.without_autotune(tf.data.Dataset.load(self._data).repeat(passes))
        if plan.steps_per_call:
            steps = min(plan.steps_per_call, _START_STEPS // 2)
            plan = plan.model_copy(update={"steps_per_call": steps})
        ended = self._loop.try_out(
            plan,
            data.with_options(_BY_ROWS),
            step_count=_START_STEPS,
            epochs=passes,
            stop_when=lambda timer: False,
        )
        _assign(self._state, before)
        return [float(loss) for loss in ended.history.history["loss"]]


def _assign(variables: Iterable[tf.Variable], values: Iterable[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
