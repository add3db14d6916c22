"""What is worse than twice its budget, where no blessed run is comparable.

Another version, machine or batch size makes speed and memory incomparable, not any value of them a
good one. What differs may explain a factor: a step on a hundred times the batch may take a hundred
times as long. What is beyond that factor and twice the budget a person has to bless.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tfx_perf import cache_key, formatting, metrics
from tfx_perf.gate import comparability, decided_level, drift, size
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.gate.run import Run
from tfx_perf.metrics import Direction
from tfx_perf.settings.rule import Rule

_BUDGETS = 2.0
_STEP = "step_time_seconds"
_PER_EXAMPLE = frozenset(
    ("examples_per_second", "energy_per_example_joules", "cost_per_million_examples")
)
_OF_WORK = ("seconds", "bytes", "joules")
_MOST = 5  # differences that are named


def check(
    key: str, rule: Rule, *, candidate: Run, ledger: Ledger, baseline_runs: int
) -> Outcome | None:
    """Returns that a figure is too bad to be blessed unseen, None if it is not.

    It is held against the median of the last blessed runs, which are those of one environment, and
    against the best level that five blessed runs in a row have held, whatever they were run on:
    else it could get worse by twice the budget with every version.

    Args:
        key: the metric.
        rule: with a margin.
        candidate: the run, which has the figure and none to compare it with.
        ledger: the blessed runs.
        baseline_runs: how many of the last ones count.
    """
    value = candidate.figure(key)
    known = [
        run
        for run in ledger.of_node(candidate)
        if run.figure(key) is not None and not comparability.is_of_a_part(key, run)
    ]
    if value is None or not known:
        return None
    direction = rule.direction_of(key)
    sign = 1.0 if direction is Direction.LOWER else -1.0
    figures = [_explained(key, run, candidate, direction=direction) for run in known]
    begin = decided_level.beginning(key, figures, runs=known, rule=rule, ledger=ledger)
    last = known[-1]
    recent = [
        (run, figure)
        for run, figure in list(zip(known, figures, strict=True))[begin:]
        if not size.differences(run.environment, last.environment)
    ][-baseline_runs:]
    level = float(np.median([figure for _, figure in recent]))
    if len(figures[begin:]) >= drift.WINDOW:
        best = drift.best_level(figures[begin:], sign=sign)
        level = sign * min(sign * level, sign * best)
    scale = max(abs(level), rule.scale)
    bound = level + sign * _BUDGETS * rule.largest_change * scale
    if sign * value <= sign * bound:
        return None
    before = float(np.median([run.figures.get(key, figure) for run, figure in recent]))
    told = "" if not ledger.comparable(candidate) else f" ({_changed(last, candidate)})"
    return Outcome(
        metric=key,
        kind="change",
        verdict=Verdict.NOT_COMPARABLE,
        reason=(
            f"{_against(key, value, before)}, and what differs from them{told} explains no more "
            f"than {formatting.format_value(key, level)}: that is worse by more than twice the "
            f"budget of {rule.largest_change:.0%}. If it is meant, `tfx-perf bless` accepts it."
        ),
        value=value,
        baseline=before,
        change=(value - before) / max(abs(before), rule.scale),
        margin=rule.margin,
        lowest=bound if sign < 0 else None,
        highest=bound if sign > 0 else None,
    )


def _explained(key: str, run: Run, candidate: Run, *, direction: Direction) -> float:
    """Returns the worst that a blessed run's figure could be with what differs in the candidate."""
    figure = run.figure(key) or 0.0
    factor = max(1.0, _factor(key, run, candidate))
    if direction is Direction.HIGHER:
        return figure / factor if figure > 0 else figure * factor
    return figure + abs(figure) * (factor - 1)


def _factor(key: str, run: Run, candidate: Run) -> float:
    """Returns how many times as bad a figure may be for the size of batch, model and training."""
    unit = metrics.lookup(key).unit
    batch = _ratio(_sizes(run), _sizes(candidate), "global_batch_size")
    if unit == "loss":
        trained = (run.trained_steps or 0.0), (candidate.trained_steps or 0.0)
        return trained[0] / trained[1] / batch if all(trained) else 1.0
    if key in metrics.SHARES_OF_A_STEP:
        return (run.figure(_STEP) or 0.0) / (candidate.figure(_STEP) or 1.0)
    if unit not in _OF_WORK and key not in _PER_EXAMPLE:
        return 1.0
    parameters = _ratio(_sizes(run), _sizes(candidate), "parameter_count")
    flops = _ratio(_sizes(run), _sizes(candidate), "flops_per_step")
    # Nobody knows the work of a step without its FLOPs: then of more examples, each in full.
    is_counted = all("flops_per_step" in _sizes(each) for each in (run, candidate))
    work = max(1.0, batch, parameters, flops if is_counted else batch * parameters)
    return work / batch if key in _PER_EXAMPLE else work


def _sizes(run: Run) -> Mapping[str, float]:
    return size.of(run.environment, fields=("global_batch_size", *size.FIELDS))


def _ratio(before: Mapping[str, float], now: Mapping[str, float], field: str) -> float:
    return now[field] / before[field] if field in before and field in now else 1.0


def _changed(last: Run, candidate: Run) -> str:
    found = cache_key.differences(last.environment, candidate.environment)
    before, now = (
        cache_key.ABSENT if steps is None else f"{steps:g}"
        for steps in (last.trained_steps, candidate.trained_steps)
    )
    if before != now:
        found["trained steps"] = before, now
    return in_words(found)


def in_words(differences: Mapping[str, Sequence[str]]) -> str:
    """Returns the first differences of two runs; the report has all.

    Args:
        differences: field to its value before and now.
    """
    found = [f"{field} {old} -> {new}" for field, (old, new) in differences.items()]
    rest = [f"and {len(found) - _MOST} more"] if found[_MOST:] else []
    return "; ".join([*found[:_MOST], *rest])


def _against(key: str, value: float, before: float) -> str:
    now, then = (formatting.format_value(key, figure) for figure in (value, before))
    if before > 0 and value / before >= 2:  # noqa: PLR2004 (per cent are hard to read then)
        return f"{now} is {value / before:.1f} times the last blessed runs' {then}"
    if before > 0:
        return f"{now} is {value / before - 1:+.1%} against the last blessed runs' {then}"
    return f"{now} is against the last blessed runs' {then}"
