"""The child's side of training in turns: one of the trainings, or a worker of one."""

import contextlib
import functools
import json
import pathlib
import socket
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from typing import IO, Any

import numpy as np
import tensorflow as tf

from tfx_perf import errors, interception
from tfx_perf.components.training_job import strategy_check, trainer_args
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.tf_data import datasets
from tfx_perf.tf_internals import autograph, worker_server
from tfx_perf.training import as_one_device, precision
from tfx_perf.training.eligibility import obstacle
from tfx_perf.training.keras_api import array_data
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.strategy_scope import StrategyScope
from tfx_perf.training.team import Team
from tfx_perf.training.trials.turns import Turn

GO = "go\n"
_START_STEPS = 10
# The first one tells by how much a training differs from itself.
_FIRST_REPETITIONS = 2
_POLL_SECONDS = 0.1
# Each worker takes its part of the same batches, however many files they are in.
_BY_ROWS = tf.data.Options()
_BY_ROWS.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA


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
    """Trains a block for each `GO` that comes, until the other side ends it or hangs up.

    What is sent back are lines: first a JSON list of the name and losses (see
    `in_turns.Trained`), when everything is compiled; then, for each block, its median seconds
    per step. The first one of several workers speaks for all.

    Args:
        job: the `TrainingJob`.
        address: of a Unix socket.
        name: told to the other side.
        folder: that all trainings have in common; what is written there is thrown away.
        is_first: whether to put there the weights and batches that all begin with.
        loss_passes: how often to train on these batches before; 0: not at all.

    Raises:
        UserError: the code or the data are not there, or cannot be trained block by block.
    """
    training = TrainingJob.model_validate(job)
    distribution = training.settings.distribution
    worker_count = distribution.workers_here
    if worker_count > 1:
        worker_server.start()
    run_fn = trainer_args.load_run_fn(training.exec_properties)

    def answer(call: interception.FitCall) -> None:
        call = array_data.on_datasets(call)
        with as_one_device.trained(call, distribution):
            take_turns(call)

    def take_turns(call: interception.FitCall) -> None:
        loop = Loop(call)
        reason = obstacle(call, loop)
        if reason:
            raise errors.UserError(f"Expected a training in steps of its own. Received: {reason}.")
        data = datasets.without_autotune(call.arguments["x"].repeat())
        team = Team(call.model.distribute_strategy)
        losses: list[list[float]] = []
        if loss_passes:
            start = _Start(call, loop, folder=pathlib.Path(folder))
            if is_first and team.is_chief:
                start.write(data)
            repetitions = _FIRST_REPETITIONS if is_first else 1
            losses = start.losses(
                training.plan, passes=loss_passes, repetitions=repetitions
            )
        greeting = json.dumps([name, losses])

        def connected() -> IO[str]:
            connection.connect(address)
            return connection.makefile("rw")

        blocks = _blocks(
            loop, training.plan, team=team, connected=connected, greeting=greeting
        )
        loop.take_turns(blocks, data)

    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        stack.enter_context(precision.policy(training.precision))
        fit: Callable[[interception.FitCall], Any] = answer
        if worker_count > 1:
            stack.enter_context(strategy_check.refusing_mirrored(distribution))
            fit = strategy_check.checked(answer, distribution)
        scope = stack.enter_context(StrategyScope(distribution.made_strategy))
        arguments = trainer_args.fn_args(
            training.input_dict,
            trainer_args.outputs_in(tempfile.mkdtemp(dir=folder)),
            training.exec_properties,
            worker_count=worker_count,
        )
        interception.capture_fit(functools.partial(run_fn, arguments), scope.outside(fit))


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

    def losses(
        self, plan: TrainingPlan, *, passes: int, repetitions: int
    ) -> list[list[float]]:
        """Returns the loss of each pass over the same few batches, once for each repetition."""
        while not self._weights.exists():  # whoever asked ends this process if it never comes
            time.sleep(_POLL_SECONDS)
        with np.load(self._weights) as file:
            weights = [file[name] for name in file.files]
        before = [variable.numpy() for variable in self._state]
        losses = []
        for _ in range(repetitions):
            _assign(self._shared, weights)
            losses.append(self._losses(plan, passes=passes))
            _assign(self._state, before)
        return losses

    def _losses(self, plan: TrainingPlan, *, passes: int) -> list[float]:
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
        return [float(loss) for loss in ended.history.history["loss"]]


def _assign(variables: Iterable[tf.Variable], values: Iterable[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _blocks(
    loop: Loop,
    plan: TrainingPlan,
    *,
    team: Team,
    connected: Callable[[], IO[str]],
    greeting: str,
) -> Generator[Turn, float, None]:
    turn = loop.turn(plan)
    yield turn  # compiles, and fills the input's buffers
    if not team.is_chief:
        while team.decides(False):
            yield turn
        return
    with connected() as lines:  # once it is traced, for which all of this may be run twice
        _send(lines, greeting)
        while team.decides(lines.readline() == GO):
            _send(lines, repr((yield turn)))


def _send(lines: IO[str], text: str) -> None:
    lines.write(f"{text}\n")
    lines.flush()
