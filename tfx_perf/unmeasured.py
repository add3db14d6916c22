"""What stands where a component had nothing to measure."""

import pathlib
from typing import ClassVar

from tfx_perf import records

FILE_NAME = "unmeasured.json"


NO_FIT = "run_fn did not call Model.fit, and only that can be measured"
"""Of a custom training loop."""


class Unmeasured(records.Record):
    """Why there are no figures, in an artifact that would have them.

    Attributes:
        reason: in a sentence without its full stop.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.unmeasured/1"

    reason: str


def reason_in(folder: str | pathlib.Path) -> str | None:
    """Returns why an artifact's folder has no figures; None if nothing says so.

    Raises:
        UserError: what says so is damaged.
    """
    path = pathlib.Path(folder, FILE_NAME)
    return Unmeasured.read(path).reason if path.exists() else None
