"""The child's side of training in turns: one of the trainings, block by block."""

import functools
import json
import pathlib
import socket
import tempfile
import time
from collections.abc import Callable, Generator
from typing import IO, Any

import numpy as np
import tensorflow as tf

from tfx_perf import errors, interception
from tfx_perf.components.training_job import trainer_args
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.tf_data import datasets
from tfx_perf.tf_internals import autograph
from tfx_perf.training import precision
from tfx_perf.training.eligibility import obstacle
from tfx_perf.training.loop import Loop
from tfx_perf.training.placement.placing import over_devices
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.strategy_scope import StrategyScope
from tfx_perf.training.trials.turns import Turn

GO = "go\n"
_START_STEPS = 10
# The first one tells by how much a training differs from itself.
_FIRST_REPETITIONS = 2
_POLL_SECONDS = 0.1


@autograph.sparing_libraries
def train_in_turns(
    *, job: dict[str, Any], address: str, name: str, start_folder: str | None, is_first: bool
) -> None:
    """Trains a block for each `GO` that comes, until the other side hangs up.

    What is sent back are lines: first a JSON list of the name and losses (see
    `in_turns.Trained`), when everything is compiled; then, for each block, its median seconds
    per step.

    Args:
        job: the `TrainingJob`.
        address: of a Unix socket.
        name: told to the other side.
        start_folder: where the weights and batches are that all begin with; None: each with its
            own.
        is_first: whether to put them there.

    Raises:
        UserError: the code or the data are not there, or cannot be trained block by block.
    """
    training = TrainingJob.model_validate(job)
    run_fn = trainer_args.load_run_fn(training.exec_properties)

    def answer(call: interception.FitCall) -> None:
        with over_devices(call, training.settings.distribution):
            take_turns(call)

    def take_turns(call: interception.FitCall) -> None:
        loop = Loop(call)
        reason = obstacle(call, loop)
        if reason:
            raise errors.UserError(f"Expected a training in steps of its own. Received: {reason}.")
        data = datasets.without_autotune(call.arguments["x"].repeat())
        losses = []
        if start_folder is not None:
            start = _Start(call, loop, folder=pathlib.Path(start_folder))
            if is_first:
                start.write(data)
            repetitions = _FIRST_REPETITIONS if is_first else 1
            losses = start.losses(training.plan, repetitions=repetitions)
        greeting = json.dumps([name, losses])

        def connected() -> IO[str]:
            connection.connect(address)
            return connection.makefile("rw")

        blocks = _blocks(loop, training.plan, connected=connected, greeting=greeting)
        loop.take_turns(blocks, data)

    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX) as connection,
        precision.policy(training.precision),
        StrategyScope(training.settings.distribution.made_strategy) as scope,
    ):
        arguments = trainer_args.fn_args(
            training.input_dict,
            trainer_args.outputs_in(str(pathlib.Path(folder, "outputs"))),
            training.exec_properties,
        )
        interception.capture_fit(functools.partial(run_fn, arguments), scope.outside(answer))


class _Start:
    """Weights and batches that several processes begin with."""

    def __init__(self, call: interception.FitCall, loop: Loop, *, folder: pathlib.Path) -> None:
        loop.prepare()
        self._variables = loop.keras_api.state(call.model)
        self._loop = loop
        self._weights, self._data = folder / "weights.npz", str(folder / "batches")

    def write(self, data: tf.data.Dataset) -> None:
        data.take(_START_STEPS).save(self._data)
        draft = self._weights.with_suffix(".draft.npz")
        np.savez(draft, *(variable.numpy() for variable in self._variables))
        draft.rename(self._weights)  # it is looked for

    def losses(self, plan: TrainingPlan, *, repetitions: int) -> list[float]:
        """Returns the loss of the same few steps, once for each repetition."""
        while not self._weights.exists():  # whoever asked ends this process if it never comes
            time.sleep(_POLL_SECONDS)
        with np.load(self._weights) as file:
            weights = [file[name] for name in file.files]
        before = [variable.numpy() for variable in self._variables]
        losses = [self._loss(plan, weights) for _ in range(repetitions)]
        self._assign(before)
        return losses

    def _loss(self, plan: TrainingPlan, weights: list[np.ndarray]) -> float:
        self._assign(weights)
        data = datasets.without_autotune(tf.data.Dataset.load(self._data))
        if plan.steps_per_call:
            steps = min(plan.steps_per_call, _START_STEPS // 2)
            plan = plan.model_copy(update={"steps_per_call": steps})
        ended = self._loop.try_out(
            plan, data, step_count=_START_STEPS, stop_when=lambda timer: False
        )
        return float(ended.history.history["loss"][-1])

    def _assign(self, values: list[np.ndarray]) -> None:
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)


def _blocks(
    loop: Loop, plan: TrainingPlan, *, connected: Callable[[], IO[str]], greeting: str
) -> Generator[Turn, float, None]:
    turn = loop.turn(plan)
    yield turn  # compiles, and fills the input's buffers
    with connected() as lines:  # once it is traced, for which all of this may be run twice
        _send(lines, greeting)
        while lines.readline() == GO:
            _send(lines, repr((yield turn)))


def _send(lines: IO[str], text: str) -> None:
    lines.write(f"{text}\n")
    lines.flush()
