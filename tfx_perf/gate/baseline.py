"""The baseline of a run: the blessed runs' figures to compare it with, at its model's size."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tfx_perf.config.gate import GateSettings
from tfx_perf.config.rule import Rule
from tfx_perf.core import metrics
from tfx_perf.gate import noise
from tfx_perf.gate import run as run_lib
from tfx_perf.gate.change import Change
from tfx_perf.gate.ledger import FIRST_RUNS, Ledger
from tfx_perf.gate.run import Run, sizes

LARGEST_UNCERTAINTY = 0.03
"""Figures that another model size makes more uncertain than this, relatively, are not compared."""

_STEPS_RATIO = 1.05
# The sign with which a figure follows the model's size, by its unit; other figures do not.
_EXPONENTS = {"seconds": 1.0, "joules": 1.0, "currency": 1.0, "bytes": 1.0, "1/second": -1.0}
# A figure may follow the size fully or not at all: the prior of its power is 0.5, give or take 0.5.
_USUAL_SLOPE = 0.5
# The first figures decide where others disagree.
_OF_A_STEP = (*metrics.STEP_TIME_EXPONENTS, *metrics.SHARES_OF_A_STEP)


@dataclasses.dataclass(frozen=True)
class Case:
    """A run to judge, the blessed runs without those of its own training, and the settings."""

    candidate: Run
    ledger: Ledger
    settings: GateSettings

    @functools.cached_property
    def known(self) -> tuple[Run, ...]:
        """The blessed runs of the node in any environment, oldest first."""
        return self.ledger.of_node(self.candidate)

    @functools.cached_property
    def comparable(self) -> tuple[Run, ...]:
        """The blessed runs of the node in the same environment, at about the same size."""
        return tuple(
            run
            for run in self.known
            if not run_lib.differences(run.environment, self.candidate.environment)
        )

    @property
    def compared(self) -> tuple[Run, ...]:
        """The last comparable runs, which form the baseline."""
        return self.comparable[-self.settings.baseline_runs :]

    @property
    def before(self) -> Run | None:
        """The last blessed run of the node; None without any."""
        return self.known[-1] if self.known else None

    @functools.cached_property
    def differences(self) -> dict[str, tuple[str, str]]:
        """The differences from the last blessed run's environment, if no run is comparable."""
        if self.before is None or self.comparable:
            return {}
        return run_lib.differences(self.before.environment, self.candidate.environment)

    @functools.cached_property
    def rules(self) -> Mapping[str, Rule]:
        """The rules by metric key, including those for impossible figures."""
        names = [*self.candidate.evaluation, *(self.before.evaluation if self.before else ())]
        untrue = (*self.candidate.impossible, *self.candidate.not_finite)
        return self.settings.rules_for(names) | {key: Rule(optional=False) for key in untrue}

    def having(self, key: str) -> Sequence[Run]:
        """Returns the blessed runs of the node that have the figure for their whole training."""
        return [
            run for run in self.known if run.figure(key) is not None and not is_partial(key, run)
        ]

    def is_of_other_trainings(self, key: str) -> bool:
        """Whether it is a loss that comparable runs have, all after more or fewer steps."""
        if metrics.lookup(key).unit != "loss":
            return False
        having = [run for run in self.comparable if run.figure(key) is not None]
        return bool(having) and not any(_trains_alike(run, self.candidate) for run in having)

    def comparable_for(self, key: str) -> Sequence[Run]:
        """Returns the blessed runs to compare a metric with, oldest first.

        Speed and memory: runs in the same environment, at about the same size. Quality depends on
        neither: every run of the node. The loss of a training: only runs with about as many steps
        on batches of one size, and the same loss function. A metric of whole trainings: none if the
        candidate's covers only a part.
        """
        if is_partial(key, self.candidate):
            return ()
        if noise.kind(key) is not noise.Kind.QUALITY:
            return [run for run in self.comparable if not is_partial(key, run)]
        if metrics.lookup(key).unit != "loss":
            return self.known
        return [run for run in self.known if _trains_alike(run, self.candidate)]


def changes(rules: Mapping[str, Rule], case: Case) -> tuple[dict[str, Change], float]:
    """Returns the comparisons by metric, and the host's factor for times."""
    by_metric = {}
    for key, rule in rules.items():
        value = case.candidate.figure(key)
        blessed = case.comparable_for(key)
        history = _history(key, rule, case=case, blessed=blessed)
        if history and value is not None:
            by_metric[key] = Change(
                key,
                value,
                history=history,
                baseline_runs=case.settings.baseline_runs,
                rule=rule,
                own_errors=noise.own_errors(key, candidate=case.candidate, blessed=blessed),
                is_repeat=all(case.candidate.repeats(run) for run in blessed),
            )
    by_metric = _at_one_level(by_metric)
    factors = {
        kind: noise.host_factor(
            [
                (change.level, math.hypot(change.prior, change.prediction.usual_error))
                for change in by_metric.values()
                if noise.kind(change.key) is kind and change.is_tested
            ]
        )
        for kind in noise.Kind
    }
    return {
        key: dataclasses.replace(change, host_factor=factors[noise.kind(key)])
        for key, change in by_metric.items()
    }, factors[noise.Kind.TIME]


def _at_one_level(by_metric: Mapping[str, Change]) -> dict[str, Change]:
    """Returns the comparisons, with all figures of a step compared with the same runs.

    Some derive from a median, others from a mean, so that a change of level may show in only one of
    them, and one would call a run faster, another slower. A run is at the current level if it is so
    by every figure.
    """
    of_step = {key: by_metric[key] for key in _OF_A_STEP if key in by_metric}
    runs: list[str] = []
    for change in of_step.values():
        common = [run for run in change.own_level_runs if run in runs]
        # If they have no runs in common, the first figure decides: no stall moves a median.
        runs = common or runs or list(change.own_level_runs)
    shared = {key: dataclasses.replace(change, level_runs=runs) for key, change in of_step.items()}
    return {**by_metric, **shared}


def is_partial(key: str, run: Run) -> bool:
    """Whether a figure covers only the last process of an interrupted training."""
    return run.is_resumed and key in metrics.OF_ONE_PROCESS


def _trains_alike(run: Run, other: Run) -> bool:
    batch_sizes = {each.environment.get("global_batch_size") for each in (run, other)}
    if len(batch_sizes) > 1 or run.loss != other.loss:
        return False
    steps, others = run.trained_steps, other.trained_steps
    if not steps or not others:
        return steps == others
    return max(steps, others) <= _STEPS_RATIO * min(steps, others)


def _history(key: str, rule: Rule, *, case: Case, blessed: Sequence[Run]) -> dict[str, float]:
    gain, value = case.candidate.gain(key), case.candidate.figure(key)
    if gain is not None and value is not None:  # on the same examples, so free of their variation
        return {"Evaluator's baseline model": value - gain}
    known = [(run, figure) for run in blessed if (figure := run.figure(key)) is not None]
    figures, uncertainty = at_size_of(
        case.candidate.environment,
        key=key,
        figures=[figure for _, figure in known],
        environments=[run.environment for run, _ in known],
        prior=rule.expected_std or noise.prior(key),
    )
    if uncertainty > LARGEST_UNCERTAINTY:
        return {}
    having = [run for run, _ in known]
    begin = since_decision(key, figures, runs=having, rule=rule, ledger=case.ledger)
    return {run.run_id: figure for run, figure in list(zip(having, figures, strict=True))[begin:]}


def since_decision(
    key: str, figures: Sequence[float], *, runs: Sequence[Run], rule: Rule, ledger: Ledger
) -> int:
    """Returns the index of the last change for the worse that a person has blessed; 0 for none.

    Earlier runs would refuse the accepted change, through the cumulative drift for years. A blessed
    run that is no worse than earlier ones was refused for something else and changes nothing.
    """
    sign = rule.worse_sign(key)
    decided = [place for place in range(1, len(runs)) if ledger.is_decided(runs[place])]
    for place in reversed(decided):
        # The level that the gate refused it for may be better than all others, or the last one.
        usual = min(sign * float(np.median(figures[begin:place])) for begin in
                     (0, max(0, place - FIRST_RUNS)))  # fmt: skip
        worse = sign * figures[place] - usual
        if worse > rule.smallest_change * max(abs(usual), rule.min_baseline):
            return place
    return 0


def at_size_of(
    environment: Mapping[str, str],
    *,
    key: str,
    figures: Sequence[float],
    environments: Sequence[Mapping[str, str]],
    prior: float,
) -> tuple[list[float], float]:
    """Returns the expected figures of some runs at another model size, and the error this adds.

    They follow a power of the size between 0 and 1, estimated from the runs as far as possible: the
    slope of a linear regression in logarithms with a normal prior (Gelman et al., "Bayesian Data
    Analysis", 3rd ed., section 14.8). `prior` is the relative standard deviation of a run; the
    error is the one that the unknown power adds to the mean. If all models are of one size, or the
    metric does not follow it, figures stay as they are.
    """
    way = _EXPONENTS.get(metrics.lookup(key).unit, 0.0)
    field = "parameter_count" if noise.kind(key) is noise.Kind.MEMORY else "flops_per_step"
    field = field if field in sizes(environment) else "parameter_count"
    size = sizes(environment).get(field)
    others = [sizes(one).get(field) for one in environments]
    if not way or size is None or None in others or min(figures, default=0.0) <= 0:
        return list(figures), 0.0
    x, y = np.log(np.asarray(others) / size), np.log(figures)
    x_centered = x - np.mean(x)
    weight, usual = (prior / _USUAL_SLOPE) ** 2, way * _USUAL_SLOPE
    slope = (usual * weight + x_centered @ y) / (weight + x_centered @ x_centered)
    slope = float(np.clip(slope, min(0.0, way), max(0.0, way)))
    uncertainty = prior / math.sqrt(weight + x_centered @ x_centered) * abs(float(np.mean(x)))
    return (np.asarray(figures) * np.exp(-slope * x)).tolist(), uncertainty
