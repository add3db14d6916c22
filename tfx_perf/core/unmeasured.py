"""The file that replaces figures if a component had nothing to measure."""

from typing import ClassVar

from tfx_perf.core import records, storage

FILE_NAME = "unmeasured.json"


class MissingMeasurement(records.Record):
    """Why an artifact has no figures.

    `reason` is a sentence without its period; if it `may_pass`, another try may give figures.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.unmeasured/1"

    reason: str
    may_pass: bool = False


def reason_in(folder: storage.Place) -> str | None:
    """Returns why a folder has no figures; None if no file says so. UserError: it is damaged."""
    path = storage.path(folder) / FILE_NAME
    return MissingMeasurement.read(path).reason if storage.exists(path) else None
