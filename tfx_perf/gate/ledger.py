"""The blessed runs to compare later runs with, and people's decisions about them."""

import collections
import datetime
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pydantic

from tfx_perf.core import records
from tfx_perf.gate import run as runs
from tfx_perf.gate.run import Run

FILE_NAME = "ledger.json"

# Keeps a ledger small however many environments a node has; a run takes about 3 KB.
_ENVIRONMENTS = 5
FIRST_RUNS = 5
"""So many first runs of an environment, and of the time since a person's decision, are never
dropped: a creeping change begins from them.
"""


class Override(records.Record):
    """A person's decision, which overrides the gate; an empty pipeline or node matches any.

    With `bless` the run counts as baseline from then on; with `unbless` it no longer does.
    """

    kind: Literal["bless", "unbless"]
    run_id: str
    pipeline: str = ""
    node: str = ""
    who: str
    time: pydantic.AwareDatetime
    reason: str

    def is_about(self, key: tuple[str, str, str]) -> bool:
        """Whether it was decided about the run of a key; see `Run.key`."""
        pipeline, node, run_id = key
        return self.run_id == run_id and self.pipeline in ("", pipeline) and self.node in ("", node)


class Ledger(records.Record):
    """The last blessed runs.

    Refused runs are never entered: a baseline that follows regressions hides them. An entry is
    never altered: a person's act can withdraw it, and it is dropped once there are enough newer
    ones.

    Ledgers that diverged, e.g. in two concurrent pipeline runs, are combined by `merge`, in any
    order and any number of times with the same result. So no writer needs a lock.

    Attributes:
        entries: the runs that count as baseline, oldest first.
        withdrawn: runs whose blessing a person has revoked, oldest first.
        acts: people's decisions, oldest first.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.ledger/2"
    SEALED: ClassVar[bool] = True

    entries: tuple[Run, ...] = ()
    withdrawn: tuple[Run, ...] = ()
    acts: tuple[Override, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that count and those that were withdrawn."""
        return (*self.entries, *self.withdrawn)

    @functools.cached_property
    def _by_key(self) -> Mapping[tuple[str, str, str], Run]:
        return {run.key: run for run in self.runs}

    def append(self, entry: Run, *, keep: int, pinned: str | None = None) -> "Ledger":
        """Returns a ledger with a run that the gate has blessed, trimmed as by `last`.

        A training counts once: a run that is evaluated again replaces its entry, and one from cache
        adds none. A run whose blessing a person has revoked stays withdrawn. It comes last even if
        earlier runs had a clock that was ahead: they would remain the baseline until that time.
        """
        latest = max((each.time for each in self.without(entry).of_node(entry)), default=entry.time)
        if entry.time < latest:
            entry = entry.model_copy(update={"time": latest + datetime.timedelta(microseconds=1)})
        return self.merge(Ledger(entries=(entry,))).last(keep, pinned=pinned)

    def merge(self, *others: "Ledger") -> "Ledger":
        """Returns a ledger with every training and every act of this one and `others`.

        The last of several evaluations of a run counts, and the first of several runs that judged
        one training. A person's last act decides whether a run counts; a run that a person blessed
        is ordered by the time of that act.
        """
        ledgers = (self, *others)
        acts = sorted(
            {act for ledger in ledgers for act in ledger.acts},
            # At the same time "unbless" comes after "bless", and so prevails.
            key=lambda act: (act.time, act.kind, act.model_dump_json()),
        )
        evaluated = sorted((run for ledger in ledgers for run in ledger.runs), key=_place_of_run)
        latest = {run.key: run for run in evaluated}.values()
        last_act = {run.key: act for run in latest for act in acts if act.is_about(run.key)}
        once: dict[Any, Run] = {}
        # A run that a person has decided about comes first, so that the decision holds for all.
        for run in sorted(latest, key=lambda run: (run.key not in last_act, _place_of_run(run))):
            training = (run.pipeline, run.node, run.artifact) if run.artifact else run.key
            once.setdefault(training, run)

        def counts_since(run: Run) -> tuple[datetime.datetime, tuple[str, str, str]]:
            act = last_act.get(run.key)
            return max(run.time, act.time) if act else run.time, run.key

        def is_out(run: Run) -> bool:
            return run.key in last_act and last_act[run.key].kind == "unbless"

        ordered = sorted(once.values(), key=counts_since)
        return Ledger(
            entries=tuple(run for run in ordered if not is_out(run)),
            withdrawn=tuple(run for run in ordered if is_out(run)),
            acts=tuple(acts),
        )

    def last(self, keep: int, *, pinned: str | None = None) -> "Ledger":
        """Returns a ledger with the pinned run and entries of each node and environment.

        Each pair has the last `keep`, and the first five in all and since each run that a person
        has blessed, so that runs that cannot be each other's baseline do not displace each other.
        A node keeps at most five times as many.
        """

        def place(entry: Run) -> tuple[Any, Any]:
            sizes = runs.sizes(entry.environment)
            others = {name: each for name, each in entry.environment.items() if name not in sizes}
            return (entry.pipeline, entry.node), frozenset(others.items())

        count: collections.Counter[Any] = collections.Counter()
        first = set()
        for entry in self.entries:
            at = place(entry)
            count[at] = 1 if self.is_decided(entry) else count[at] + 1
            if count[at] <= FIRST_RUNS:
                first.add(entry.key)
        newer: collections.Counter[Any] = collections.Counter()
        most = _ENVIRONMENTS * (keep + FIRST_RUNS)
        newest = []
        for entry in reversed(self.entries):
            node, _ = at = place(entry)
            newer[at] += 1
            if entry.run_id == pinned:
                newest.append(entry)
            elif (newer[at] <= keep or entry.key in first) and newer[node] < most:
                newer[node] += 1
                newest.append(entry)
        return self.model_copy(update={"entries": tuple(reversed(newest))})

    def without(self, run: Run) -> "Ledger":
        """Returns a ledger without the entries of a run's training, for judging it."""
        others = tuple(entry for entry in self.entries if not entry.shares_training_with(run))
        return self.model_copy(update={"entries": others})

    def beyond(self, known: "Ledger") -> "Ledger":
        """Returns the entries and acts that `known` lacks; `Ledger()` if there are none."""
        return Ledger(
            entries=tuple(run for run in self.entries if not known.holds(run)),
            withdrawn=tuple(run for run in self.withdrawn if not known.holds(run)),
            acts=tuple(act for act in self.acts if act not in known.acts),
        )

    def holds(self, run: Run) -> bool:
        """Whether a run is among those that count or were withdrawn, with the same figures."""
        return self._by_key.get(run.key) == run

    def is_decided(self, entry: Run) -> bool:
        """Whether a person has blessed one of the entries, against the gate."""
        return any(act.kind == "bless" and act.is_about(entry.key) for act in self.acts)

    def of_node(self, candidate: Run) -> tuple[Run, ...]:
        """Returns the measured runs of a run's node in any environment, oldest first."""
        return tuple(
            entry
            for entry in self.entries
            if entry.shares_node_with(candidate) and not entry.impossible
        )


def _place_of_run(run: Run) -> tuple[datetime.datetime, str]:
    return run.time, run.model_dump_json()
