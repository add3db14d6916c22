"""What differs between two runs, and what of it contributes most."""

import dataclasses
import math
from collections.abc import Mapping

from tfx_perf import fingerprint, metrics
from tfx_perf.mlmd.recorded_runs import RecordedRun

# The parts of a training's wall time, as sums of metrics with a sign; no part holds another.
_TIMES = {
    "before fit": {"setup_time_seconds": 1},
    "trials": {"trial_time_seconds": 1},
    "first step": {"time_to_first_step_seconds": 1, "trial_time_seconds": -1},
    "further steps": {"fit_time_seconds": 1, "time_to_first_step_seconds": -1},
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """One figure of two runs.

    Attributes:
        name: a metric's key (see `metrics.lookup`), or a part of the time.
        before: the first run's; None if it has none.
        after: the second run's; None if it has none.
    """

    name: str
    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        """The second over the first; None where a factor says nothing."""
        if self.before is None or self.after is None or self.before * self.after <= 0:
            return None
        return self.after / self.before

    @property
    def seconds(self) -> float:
        """The second less the first."""
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def better(self) -> bool | None:
        """Whether the second is better; None if neither is, or one is missing."""
        way = metrics.lookup(self.name).direction
        if way is metrics.Direction.NONE or self.before is None or self.after is None:
            return None
        return (self.after > self.before) is (way is metrics.Direction.HIGHER)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything in which two runs differ.

    Attributes:
        plans: what was done for speed, to both values.
        environment: field of the fingerprint to both values; empty means comparable.
        times: the parts of the wall time of training, largest difference first; empty if one
            of the runs does not have them all.
        figures: metrics that differ, largest factor first; those without a factor last.
        equal_count: metrics that both have and that do not differ.
    """

    plans: Mapping[str, tuple[str, str]]
    environment: Mapping[str, tuple[str, str]]
    times: tuple[Difference, ...]
    figures: tuple[Difference, ...]
    equal_count: int


def compare(before: RecordedRun, after: RecordedRun) -> Comparison:
    """Compares two runs; see `Comparison`."""
    pairs = [
        Difference(key, before.metrics.get(key), after.metrics.get(key))
        for key in sorted({*before.metrics, *after.metrics})
    ]
    different = [pair for pair in pairs if pair.before != pair.after]
    return Comparison(
        plans=fingerprint.differences(before.plans, after.plans),
        environment=fingerprint.differences(before.environment, after.environment),
        times=_times(before, after),
        figures=tuple(sorted(different, key=_weight, reverse=True)),
        equal_count=len(pairs) - len(different),
    )


def _weight(difference: Difference) -> tuple[bool, float]:
    ratio = difference.ratio
    return ratio is not None, abs(math.log(ratio)) if ratio else 0.0


def _times(before: RecordedRun, after: RecordedRun) -> tuple[Difference, ...]:
    needed = {key for parts in _TIMES.values() for key in parts}
    if not needed <= before.metrics.keys() & after.metrics.keys():
        return ()
    parts = [
        Difference(name, *(_sum(run.metrics, terms) for run in (before, after)))
        for name, terms in _TIMES.items()
    ]
    return tuple(sorted(parts, key=lambda part: abs(part.seconds), reverse=True))


def _sum(figures: Mapping[str, float], terms: Mapping[str, int]) -> float:
    return sum(sign * figures[key] for key, sign in terms.items())
