"""The gate's error rates, from its answers on the recorded runs."""

import collections
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tfx_perf.config.gate import GateSettings
from tfx_perf.core import records
from tfx_perf.gate.decision import GateRecord, Verdict
from tfx_perf.gate.ledger import Ledger, Override
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import evaluate


class MetricCalibration(records.Record):
    """One metric over all replayed runs: how often it was beyond a limit, compared or inconclusive.

    Attributes:
        noise: standard deviation of the runs that the last one was compared with, as a share
            of their mean; None for a single run or a mean of zero.
        detectable: smallest change for the worse that is called a regression in four of five
            runs, as a share of the baseline of the last run; None without a ratio.
    """

    metric: str
    beyond_limit: int
    compared: int
    regressions: int
    inconclusive: int
    noise: float | None
    detectable: float | None


class Calibration(records.Record):
    """The gate's results over a history: the runs it compared, and how many of them it refused.

    `beyond_limit` counts all runs that an absolute limit refuses.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.calibration/2"

    replayed: int
    refused: int
    beyond_limit: int
    metrics: tuple[MetricCalibration, ...]

    @property
    def false_alarm_rate(self) -> float | None:
        """Share of refused runs; these are false alarms if no run was actually worse."""
        return self.refused / self.replayed if self.replayed else None


def replay(
    runs: Sequence[Run], settings: GateSettings, *, acts: Sequence[Override] = ()
) -> Calibration:
    """Judges each run, oldest first, by the earlier ones, all assumed to be good and blessed.

    `acts` are people's decisions on them: what a person accepted is no drift of later runs.
    """
    settings = _all_optional(settings, runs)
    ledger, decisions = Ledger(), []
    for run in runs:
        decisions.append(evaluate(run, ledger=ledger, settings=settings))
        ledger = Ledger(entries=(*ledger.entries, run), acts=tuple(acts))
        ledger = ledger.last(settings.ledger_size)
    compared = [decision for decision in decisions if decision.baseline_runs]
    beyond = [_refused_metrics(decision, by_limit=True) for decision in decisions]
    keys = dict.fromkeys(item.metric for decision in decisions for item in decision.outcomes)
    replays = [
        _metric(key, compared, beyond_limit=sum(key in each for each in beyond)) for key in keys
    ]
    return Calibration(
        replayed=len(compared),
        refused=sum(bool(_refused_metrics(decision, by_limit=False)) for decision in compared),
        beyond_limit=sum(map(bool, beyond)),
        metrics=tuple(item for item in replays if item.compared or item.beyond_limit),
    )


def _refused_metrics(decision: GateRecord, *, by_limit: bool) -> set[str]:
    """Returns the metrics that refuse a run: by absolute limits, or for any other reason."""
    return {
        item.metric
        for item in decision.outcomes
        if item.refuses and (item.verdict is Verdict.LIMIT) is by_limit
    }


def _all_optional(settings: GateSettings, runs: Sequence[Run]) -> GateSettings:
    names = dict.fromkeys(name for run in runs for name in run.evaluation)
    rules = {
        key: rule.model_copy(update={"optional": True})
        for key, rule in settings.rules_for(names).items()
    }
    # A reference run does not exist yet when the replay begins.
    update = {"rules": rules, "use_defaults": False, "reference_run": None}
    return settings.model_copy(update=update)


def _metric(key: str, decisions: Sequence[GateRecord], *, beyond_limit: int) -> MetricCalibration:
    outcomes = [
        item
        for decision in decisions
        for item in decision.outcomes
        if item.metric == key and item.kind == "change" and item.checked
    ]
    verdicts = collections.Counter(item.verdict for item in outcomes)
    detectable = [
        item.of_baseline(item.detectable) for item in outcomes if item.detectable is not None
    ]
    return MetricCalibration(
        metric=key,
        beyond_limit=beyond_limit,
        compared=len(outcomes),
        regressions=verdicts[Verdict.REGRESSION],
        inconclusive=verdicts[Verdict.INCONCLUSIVE],
        noise=_noise(key, decisions[-1].baseline_runs) if decisions else None,
        detectable=detectable[-1] if detectable else None,
    )


def _noise(key: str, runs: Sequence[Run]) -> float | None:
    known = [figure for run in runs if (figure := run.figure(key)) is not None]
    mean = abs(float(np.mean(known))) if known else 0.0
    return float(np.std(known, ddof=1)) / mean if mean and len(known) > 1 else None
