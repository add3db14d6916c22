"""The gate's verdicts on trainings of 100 to 10,000 steps, on a quiet and a busy machine."""

import datetime
import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks.gate import histories
from tfx_perf.config.gate import GateSettings
from tfx_perf.core import records, statistics
from tfx_perf.gate.decision import Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import evaluate

_STEP_SECONDS = 1e-3
_RUN_SD = 0.01
_BATCH_SIZE = 64
# On a busy machine, three loads start and stop, each after about this many steps. A load
# multiplies the step time by this factor while it runs.
_LOAD_STEPS, _LOAD_FACTOR = (10, 100, 1000), 1.5
_STEPS = (100, 300, 1000, 10_000)
_EFFECTS = (0.0, 0.1, 0.3, 1.0)
_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


class ShortRuns(records.Record):
    """The gate's verdicts on trainings of one length on one machine.

    Attributes:
        is_busy: whether other work comes and goes.
        steps: of a training.
        blessed_runs: before the one that is judged.
        effect: true relative change of the step time.
        count: histories.
        refused: share that the gate refused, as a regression or as inconclusive.
        regression: share in which it found a regression in a figure that may refuse.
    """

    is_busy: bool
    steps: int
    blessed_runs: int
    effect: float
    count: int
    refused: float
    regression: float

    def describe(self) -> str:
        """Returns the result in one line."""
        return (
            f"{'busy' if self.is_busy else 'quiet'}, {self.steps} steps, after "
            f"{self.blessed_runs}, {self.effect:+.0%}: {self.regression:.1%} regressions, "
            f"{self.refused:.1%} refused"
        )


def judge(*, count: int, seed: int = 0) -> Iterator[ShortRuns]:
    """Simulates and judges trainings, by the default rules.

    Args:
        count: histories of each kind.
        seed: of the noise.
    """
    kinds = itertools.product((False, True), _STEPS, (1, 3, 8), _EFFECTS)
    for number, (is_busy, steps, blessed_runs, effect) in enumerate(kinds):
        yield judge_kind(
            np.random.default_rng([seed, number]),
            is_busy=is_busy,
            steps=steps,
            blessed_runs=blessed_runs,
            effect=effect,
            count=count,
        )


def judge_kind(
    random: np.random.Generator,
    *,
    is_busy: bool,
    steps: int,
    blessed_runs: int,
    effect: float,
    count: int,
) -> ShortRuns:
    """Simulates and judges trainings of one kind.

    Args:
        random: draws the noise.
        is_busy: see `ShortRuns`.
        steps: see `ShortRuns`.
        blessed_runs: see `ShortRuns`.
        effect: see `ShortRuns`.
        count: see `ShortRuns`.
    """
    refused = regressions = 0
    for _ in range(count):
        times = [step_seconds(random, steps=steps, is_busy=is_busy) for _ in range(blessed_runs)]
        last = (1 + effect) * step_seconds(random, steps=steps, is_busy=is_busy)
        runs = [_run(number, seconds) for number, seconds in enumerate([*times, last])]
        decision = evaluate(
            runs[-1], ledger=Ledger(entries=tuple(runs[:-1])), settings=GateSettings()
        )
        refused += not decision.blessed
        regressions += any(
            item.refuses and item.verdict is Verdict.REGRESSION for item in decision.outcomes
        )
    return ShortRuns(
        is_busy=is_busy,
        steps=steps,
        blessed_runs=blessed_runs,
        effect=effect,
        count=count,
        refused=refused / count,
        regression=regressions / count,
    )


def step_seconds(random: np.random.Generator, *, steps: int, is_busy: bool) -> np.ndarray:
    """Returns the seconds of each step of a training.

    Args:
        random: draws the noise.
        steps: of the training.
        is_busy: whether other work comes and goes.
    """
    seconds = _STEP_SECONDS * histories.scattered(random, (steps,), dtype=np.float64)
    seconds *= 1 + _RUN_SD * random.standard_normal()
    for hold in _LOAD_STEPS if is_busy else ():
        is_there = (random.integers(2) + np.cumsum(random.random(steps) < 1 / hold)) % 2
        seconds *= np.where(is_there, _LOAD_FACTOR, 1.0)
    return seconds


def _run(number: int, seconds: np.ndarray) -> Run:
    mean = float(np.mean(seconds))
    return Run(
        run_id=str(number),
        time=_START + datetime.timedelta(hours=number),
        environment={"global_batch_size": str(_BATCH_SIZE)},
        figures={
            "step_time_seconds": float(np.median(seconds)),
            "step_time_median_error_ratio": statistics.median_error_ratio(seconds) or 0.0,
            "examples_per_second": _BATCH_SIZE / mean,
            "step_time_error_ratio": statistics.mean_error_ratio(seconds) or 0.0,
            "training_memory_bytes": 1e9,
            "train_step_count": float(len(seconds)),
        },
    )
