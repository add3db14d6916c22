"""The blessed runs that later runs are compared with."""

from collections.abc import Mapping
from typing import ClassVar

from tfx_perf import fingerprint, records
from tfx_perf.gate import run

FILE_NAME = "ledger.json"


class Ledger(records.Record):
    """The last blessed runs, oldest first.

    Refused runs are never entered: a baseline that follows regressions hides them.

    Example:
        >>> Ledger().append(candidate, keep=8).write("ledger.json")
    """

    SCHEMA: ClassVar[str] = "tfx_perf.ledger/1"

    entries: tuple[run.Run, ...] = ()

    def append(self, entry: run.Run, *, keep: int) -> "Ledger":
        """Returns a ledger with `entry` last and at most `keep` entries.

        A run that is evaluated again replaces its earlier entry, so that it counts once.
        """
        others = [other for other in self.entries if other.run_id != entry.run_id]
        return Ledger(entries=(*others, entry)[-keep:])

    def comparable(self, environment: Mapping[str, str]) -> tuple[run.Run, ...]:
        """Returns the runs that were measured in the same environment, oldest first."""
        return tuple(
            entry
            for entry in self.entries
            if not fingerprint.differences(entry.environment, environment)
        )
