"""Shortage: what all workers do otherwise when they begin again after one ran out of memory."""

import contextlib
import pathlib
from typing import ClassVar, NoReturn

from tfx_perf.core import errors, records
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.recovery.training_state import Writers
from tfx_perf.training.team import ShortOfMemoryError, Team

_FILE = "shortage.json"


class Shortage(records.Record):
    """A step that did not fit into the memory of one of several workers.

    The others wait in that step, so that it cannot be run again there and then.

    Attributes:
        worker: the index of the one that has left this.
        micro_batches: into how many slices each replica had cut its rows.
        count: how many steps of the training have not fitted so far, this one included.
        writers: who trained.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.shortage/1"

    worker: int
    micro_batches: int
    count: int
    writers: Writers


class Shortages:
    """What several workers do where one of them runs out of memory: all begin again, in slices.

    Attributes:
        left: what one of these workers has left, the same for all; None if nothing, if others left
            it, who may have fewer rows each, or if a process trains alone.
    """

    def __init__(self, folder: pathlib.Path | None, *, team: Team, writers: Writers) -> None:
        """Looks for what was left; all workers do.

        Args:
            folder: where the checkpoints of the training go, if there are any; need not exist yet.
            team: that trains.
            writers: who trains.
        """
        self._folder, self._team, self._writers = folder, team, writers
        found = None if folder is None or team.count == 1 else _read(folder, writers)
        self.left = found if team.agrees(str(found)) else None

    @property
    def count(self) -> int:
        """Steps of the training that have not fitted so far."""
        return self.left.count if self.left else 0

    def end_step(
        self,
        error: Exception,
        plan: TrainingPlan,
        *,
        batch_rows: int | None,
        obstacle: str | None,
    ) -> NoReturn:
        """Ends a step that does not fit, so that all workers, who wait in it, begin again.

        Args:
            error: what the step raised.
            plan: that was trained with.
            batch_rows: rows of a batch of all replicas; None if nobody knows.
            obstacle: why no batch can be cut; None if it can.

        Raises:
            UserError: smaller slices would not help.
            ShortOfMemoryError: they would, where all workers begin again.
        """
        size = "" if batch_rows is None else f" with a batch of {batch_rows} rows"
        said = (
            "Expected a step that fits into the memory of every worker. Received: "
            f"{errors.in_one_line(error)} on worker {self._team.index}{size}, with {plan}."
        )
        if batch_rows is not None and plan.micro_batches * self._writers.replicas >= batch_rows:
            obstacle = "each slice has one row"
        reason = obstacle or self._refused(plan)
        if reason:
            raise errors.UserError(
                f"{said} It cannot be cut: {reason}. Make the batch smaller, or have more workers "
                "share it."
            ) from error
        raise ShortOfMemoryError(
            f"{said} Started again, all workers go on in smaller slices."
        ) from error

    def _refused(self, plan: TrainingPlan) -> str | None:
        """Tells all workers that begin again that a step did not fit; returns why it cannot."""
        if self._folder is None:
            return "there is no training.checkpoint_folder for what the others must know"
        shortage = Shortage(
            worker=self._team.index,
            micro_batches=plan.micro_batches,
            count=self.count + 1,
            writers=self._writers,
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            shortage.write(self._folder / _FILE)
        except OSError as error:
            return f"what the others must know cannot be written ({error})"
        return None


def forget(folder: pathlib.Path) -> None:
    """Forgets it: all is trained."""
    with contextlib.suppress(OSError):
        (folder / _FILE).unlink()


def _read(folder: pathlib.Path, writers: Writers) -> Shortage | None:
    with contextlib.suppress(errors.UserError):  # there is none, or it is of another version
        found = Shortage.read(folder / _FILE)
        return found if found.writers == writers else None
    return None
