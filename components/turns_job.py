"""The child's side of measuring two trainings in turns: one of them, block by block."""

import functools
import pathlib
import socket
import tempfile
from collections.abc import Generator
from typing import IO

from tfx.utils import json_utils

from tfx_perf import datasets, errors, interception
from tfx_perf.components import trainer_args
from tfx_perf.components.optimized_trainer.job import TrainingJob
from tfx_perf.training import precision
from tfx_perf.training.eligibility import obstacle
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials.turns import Turn

GO = "go\n"


def train_in_turns(*, job: str, address: str, name: str) -> None:
    """Trains a block for each `GO` that comes, until the other side hangs up.

    What is sent back are lines: first the name, when everything is compiled; then, for each
    block, its median seconds per step.

    Args:
        job: path of a `TrainingJob`.
        address: of a Unix socket.
        name: told to the other side.

    Raises:
        UserError: the code or the data are not there, or cannot be trained block by block.
    """
    training = TrainingJob.read(job)
    run_fn = trainer_args.load_run_fn(training.exec_properties)
    policy = training.plan.precision
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX) as connection,
        precision.policy(policy),
    ):
        connection.connect(address)
        arguments = trainer_args.fn_args(
            json_utils.loads(training.inputs),
            trainer_args.outputs_in(str(pathlib.Path(folder, "outputs"))),
            training.exec_properties,
        )
        with connection.makefile("rw") as lines:
            look = functools.partial(_answer, plan=training.plan, lines=lines, name=name)
            interception.capture_fit(functools.partial(run_fn, arguments), look)


def _answer(
    call: interception.FitCall, *, plan: TrainingPlan, lines: IO[str], name: str
) -> None:
    loop = Loop(call)
    reason = obstacle(call, loop)
    if reason:
        raise errors.UserError(f"Expected a training in steps of its own. Received: {reason}.")
    data = datasets.without_autotune(call.arguments["x"].repeat())
    loop.take_turns(_blocks(loop, plan, lines=lines, name=name), data)


def _blocks(
    loop: Loop, plan: TrainingPlan, *, lines: IO[str], name: str
) -> Generator[Turn, float, None]:
    turn = loop.turn(plan)
    yield turn  # compiles, and fills the input's buffers
    _send(lines, name)
    while lines.readline() == GO:
        _send(lines, repr((yield turn)))


def _send(lines: IO[str], text: str) -> None:
    lines.write(f"{text}\n")
    lines.flush()
