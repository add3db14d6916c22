"""Shortage: tells workers that begin again that one of them ran out of memory."""

import contextlib
import pathlib
from typing import ClassVar, NoReturn

from tfx_perf.core import errors, records
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.recovery.checkpoint_store import SHORTAGE
from tfx_perf.training.recovery.training_state import Writers
from tfx_perf.training.replicas.sync import ShortOfMemoryError, Sync


class Shortage(records.Record):
    """A step that did not fit into one worker's memory; the others wait in it."""

    SCHEMA: ClassVar[str] = "tfx_perf.shortage/1"

    worker: int  # the one that ran out
    micro_batches: int  # slices of each replica's rows
    count: int  # steps that have not fitted so far
    writers: Writers  # who trained


class Shortages:
    """Makes several workers begin again, in slices, after one of them ran out of memory.

    `left` is the shortage that one of these workers left; None if there is none, or others left it,
    who may have fewer rows each.
    """

    def __init__(self, folder: pathlib.Path | None, *, sync: Sync, writers: Writers) -> None:
        """Looks for a shortage in the checkpoints' folder, which need not exist; all workers do."""
        self._folder, self._sync, self._writers = folder, sync, writers
        found = None if folder is None or sync.size == 1 else _read(folder, writers)
        self.left = found if sync.all_equal(found) else None

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

        Raises ShortOfMemoryError; UserError if smaller slices would not help, or no batch can be
        cut (`obstacle`).
        """
        size = "" if batch_rows is None else f" with a batch of {batch_rows} rows"
        said = (
            "Expected a step that fits into the memory of every worker. Received: "
            f"{errors.in_one_line(error)} on worker {self._sync.rank}{size}, with {plan}."
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
            worker=self._sync.rank,
            micro_batches=plan.micro_batches,
            count=self.count + 1,
            writers=self._writers,
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            shortage.write(self._folder / SHORTAGE)
        except OSError as error:
            return f"what the others must know cannot be written ({error})"
        return None


def _read(folder: pathlib.Path, writers: Writers) -> Shortage | None:
    with contextlib.suppress(errors.UserError):  # there is none, or it is of another version
        found = Shortage.read(folder / SHORTAGE)
        return found if found.writers == writers else None
    return None
