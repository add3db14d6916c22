"""Shortage: what all workers do otherwise when they begin again after one ran out of memory."""

import contextlib
import pathlib
from typing import ClassVar

from tfx_perf import errors, records
from tfx_perf.training.recovery.writers import Writers

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


def leave(folder: pathlib.Path, shortage: Shortage) -> None:
    """Leaves it for all workers that begin again.

    Args:
        folder: where the checkpoints of the training go; need not exist yet.
        shortage: what they must know.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shortage.replace(folder / _FILE)


def found(folder: pathlib.Path, writers: Writers) -> Shortage | None:
    """Returns what one of these workers has left; None if nothing, or of others.

    Others may have fewer rows each.

    Args:
        folder: where the checkpoints of the training go.
        writers: who trains now.
    """
    with contextlib.suppress(errors.UserError):  # there is none, or it is of another version
        left = Shortage.read(folder / _FILE)
        return left if left.writers == writers else None
    return None


def forget(folder: pathlib.Path) -> None:
    """Forgets it: all is trained."""
    with contextlib.suppress(OSError):
        (folder / _FILE).unlink()
