"""What differs between two runs, and what of it contributes most."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tfx_perf import cache_key, metrics
from tfx_perf.gate import step_division
from tfx_perf.mlmd.recorded_runs import RecordedRun

# The parts of a training's wall time, as sums of metrics with a sign; no part holds another.
_TIMES = {
    "before fit": {"setup_time_seconds": 1},
    "trials": {"trial_time_seconds": 1},
    "first step": {"time_to_first_step_seconds": 1, "trial_time_seconds": -1},
}
_BETWEEN = "validation, and all else between steps"
_AFTER_FIRST_STEP = {"fit_time_seconds": 1, "time_to_first_step_seconds": -1}


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
        plans=cache_key.differences(before.plans, after.plans),
        environment=cache_key.differences(before.environment, after.environment),
        times=_times(before, after),
        figures=tuple(sorted(different, key=_weight, reverse=True)),
        equal_count=len(pairs) - len(different),
    )


def _weight(difference: Difference) -> tuple[bool, float]:
    ratio = difference.ratio
    return ratio is not None, abs(math.log(ratio)) if ratio else 0.0


def _times(before: RecordedRun, after: RecordedRun) -> tuple[Difference, ...]:
    needed = {key for parts in (*_TIMES.values(), _AFTER_FIRST_STEP) for key in parts}
    if not needed <= before.metrics.keys() & after.metrics.keys():
        return ()
    both = before.metrics, after.metrics
    times = [
        {name: _sum(run, terms) for name, terms in _TIMES.items()} | further
        for run, further in zip(both, _after_first_step(both), strict=True)
    ]
    parts = [Difference(name, *(time[name] for time in times)) for name in times[0]]
    return tuple(sorted(parts, key=lambda part: abs(part.seconds), reverse=True))


def _after_first_step(runs: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Returns the same parts of the time after the first step for each run, as far as all tell."""
    whole = [_sum(run, _AFTER_FIRST_STEP) for run in runs]
    steps = [_further_steps_seconds(run) for run in runs]
    if None in steps:
        return [{"further steps, and what is between them": seconds} for seconds in whole]
    parts = step_division.known_parts(runs)
    found = []
    for run, seconds, own in zip(runs, whole, steps, strict=True):
        in_steps = min(seconds, own or 0.0)
        saving = min(seconds - in_steps, run.get("checkpoint_time_seconds", 0.0))
        shares = {part: in_steps * step_division.share_of(part, run) for part in parts}
        divided = step_division.divided(in_steps, shares)
        found.append(
            {f"further steps: {part}": time for part, time in divided.items()}
            | {"saving checkpoints": saving, _BETWEEN: seconds - in_steps - saving}
        )
    return found


def _further_steps_seconds(figures: Mapping[str, float]) -> float | None:
    """Returns what the steps after those of the first call took; None if that is not known."""
    mean, count = step_division.mean_seconds(figures), figures.get("train_step_count")
    if mean is None or count is None:
        return None
    return mean * max(0.0, count - figures.get("steps_per_call", 1.0))


def _sum(figures: Mapping[str, float], terms: Mapping[str, int]) -> float:
    return sum(sign * figures[key] for key, sign in terms.items())
