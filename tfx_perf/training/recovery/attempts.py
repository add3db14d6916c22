"""Attempts: which plan has ended its process again and again without getting further."""

import contextlib
import pathlib
from typing import ClassVar

from tfx_perf import errors, records
from tfx_perf.training.plan import TrainingPlan

_FILE = "attempt.json"
# One end may be a preempted machine's.
MOST = 2


class Attempt(records.Record):
    """A training that was begun, or gone on with.

    Attributes:
        plan: how its steps were run.
        step: where it began.
        count: how often it has begun there with this plan.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.attempt/1"

    plan: TrainingPlan
    step: int
    count: int


def begin(folder: pathlib.Path, plan: TrainingPlan, *, step: int) -> bool:
    """Notes that a training begins.

    Args:
        folder: where its checkpoints go; need not exist yet.
        plan: how its steps will be run.
        step: where it begins.

    Returns:
        Whether the plan may be used: not if it has begun there `MOST` times before, and no
        checkpoint came of it.
    """
    path = folder / _FILE
    before = None
    with contextlib.suppress(errors.UserError):  # there is none, or it is of another version
        before = Attempt.read(path)
    count = 1
    if before is not None and (before.plan, before.step) == (plan, step):
        count += before.count
    if count > MOST:
        return False
    with contextlib.suppress(OSError):  # no room: nothing is known of attempts then
        folder.mkdir(parents=True, exist_ok=True)
        Attempt(plan=plan, step=step, count=count).write(path)
    return True


def forget(folder: pathlib.Path) -> None:
    """Forgets the attempts: the training has ended otherwise than with its process."""
    with contextlib.suppress(OSError):
        (folder / _FILE).unlink()
