"""The blessed runs that later runs are compared with."""

import collections
import datetime
from collections.abc import Iterable, Mapping
from typing import ClassVar

from tfx_perf import fingerprint, records
from tfx_perf.gate.act import Act
from tfx_perf.gate.run import Run

FILE_NAME = "ledger.json"

# So that a ledger stays small however many environments there are; a run is some 3 KB.
_ENVIRONMENTS = 5


class Ledger(records.Record):
    """The last blessed runs.

    Refused runs are never entered: a baseline that follows regressions hides them. Nor is
    an entry ever altered: it can be withdrawn by an act of a person, and it is dropped
    when enough newer ones are there.

    Ledgers that grew apart, e.g. in two pipeline runs at a time, are put together by
    `merge`, in any order and any number of times with the same result. That is why no
    writer needs a lock.

    Attributes:
        entries: the runs that count as baseline, oldest first.
        withdrawn: blessed runs that a person has unblessed since, oldest first.
        acts: what people decided, oldest first.

    Example:
        >>> Ledger().append(candidate, keep=8).write("ledger.json")
    """

    SCHEMA: ClassVar[str] = "tfx_perf.ledger/2"
    SEALED: ClassVar[bool] = True

    entries: tuple[Run, ...] = ()
    withdrawn: tuple[Run, ...] = ()
    acts: tuple[Act, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that count and those that were withdrawn."""
        return (*self.entries, *self.withdrawn)

    def append(self, entry: Run, *, keep: int) -> "Ledger":
        """Returns a ledger with a run that the gate has blessed.

        A run that is evaluated again replaces its earlier entry, so that it counts once. One
        that a person has unblessed stays withdrawn.

        Args:
            entry: the run.
            keep: see `last`.
        """
        return self.merge(Ledger(entries=(entry,))).last(keep)

    def merge(self, *others: "Ledger") -> "Ledger":
        """Returns a ledger with every run and every act of this one and `others`.

        Of a run that was evaluated several times the last one counts; a person's last act
        decides whether it does. A run that a person blessed takes its place at that time.
        """
        ledgers = (self, *others)
        acts = sorted({act for ledger in ledgers for act in ledger.acts}, key=_place_of_act)
        last_act = {act.run_id: act for act in acts}
        evaluated = sorted((run for ledger in ledgers for run in ledger.runs), key=_place_of_run)
        once = {run.run_id: run for run in evaluated}.values()

        def counts_since(run: Run) -> tuple[datetime.datetime, str]:
            act = last_act.get(run.run_id)
            return max(run.time, act.time) if act else run.time, run.run_id

        ordered = sorted(once, key=counts_since)
        out = {run_id for run_id, act in last_act.items() if act.kind == "unbless"}
        return Ledger(
            entries=tuple(run for run in ordered if run.run_id not in out),
            withdrawn=tuple(run for run in ordered if run.run_id in out),
            acts=tuple(acts),
        )

    def last(self, keep: int) -> "Ledger":
        """Returns a ledger with the last `keep` entries of each environment.

        Of each, because a run of another environment is no baseline and must not push one
        out. Of all together at most five times as many are kept.
        """
        newer: collections.Counter[frozenset] = collections.Counter()
        kept = []
        for entry in reversed(self.entries):
            environment = frozenset(entry.environment.items())
            newer[environment] += 1
            if newer[environment] <= keep:
                kept.append(entry)
        entries = tuple(reversed(kept[: _ENVIRONMENTS * keep]))
        return self.model_copy(update={"entries": entries})

    def without(self, run_ids: Iterable[str]) -> "Ledger":
        """Returns a ledger without the entries of those runs, for judging one of them."""
        dropped = set(run_ids)
        others = tuple(entry for entry in self.entries if entry.run_id not in dropped)
        return self.model_copy(update={"entries": others})

    def beyond(self, known: "Ledger") -> "Ledger":
        """Returns what `known` does not have; empty compares equal to `Ledger()`."""
        return Ledger(
            entries=tuple(run for run in self.entries if run not in known.runs),
            withdrawn=tuple(run for run in self.withdrawn if run not in known.runs),
            acts=tuple(act for act in self.acts if act not in known.acts),
        )

    def comparable(self, environment: Mapping[str, str]) -> tuple[Run, ...]:
        """Returns the runs that were measured in the same environment, oldest first."""
        return tuple(
            entry
            for entry in self.entries
            if not fingerprint.differences(entry.environment, environment)
        )


def _place_of_act(act: Act) -> tuple[datetime.datetime, str, str]:
    # At the very same time "unbless" comes after "bless", and so prevails.
    return act.time, act.kind, act.model_dump_json()


def _place_of_run(run: Run) -> tuple[datetime.datetime, str]:
    return run.time, run.model_dump_json()
