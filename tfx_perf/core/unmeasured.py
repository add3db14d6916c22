"""What stands where a component had nothing to measure."""

import pathlib
from typing import ClassVar

import upath

from tfx_perf.core import records, storage

FILE_NAME = "unmeasured.json"


class Unmeasured(records.Record):
    """Why there are no figures, in an artifact that would have them.

    Attributes:
        reason: in a sentence without its full stop.
        may_pass: whether another try may have figures: a process was killed, say.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.unmeasured/1"

    reason: str
    may_pass: bool = False


def reason_in(folder: str | pathlib.Path | upath.UPath) -> str | None:
    """Returns why an artifact's folder has no figures; None if nothing says so.

    Raises:
        UserError: what says so is damaged.
    """
    path = storage.path(folder) / FILE_NAME
    return Unmeasured.read(path).reason if storage.exists(path) else None
