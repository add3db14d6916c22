"""What stands where a component had nothing to measure."""

import pathlib
from typing import ClassVar

import upath

from tfx_perf.core import records, storage

FILE_NAME = "unmeasured.json"


class MissingMeasurement(records.Record):
    """Why there are no figures, in an artifact that would have them.

    `reason` is a sentence without its full stop; if it `may_pass`, another try may have figures.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.unmeasured/1"

    reason: str
    may_pass: bool = False


def reason_in(folder: str | pathlib.Path | upath.UPath) -> str | None:
    """Returns why a folder has no figures; None if nothing says so. UserError: it is damaged."""
    path = storage.path(folder) / FILE_NAME
    return MissingMeasurement.read(path).reason if storage.exists(path) else None
