"""Cumulative drift: the last blessed runs alone would let a creeping slowdown through.

Each small step is within the tolerance and becomes the next one's baseline. Another version,
machine or batch size makes speed and memory incomparable, which does not make every value of them
acceptable.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from tfx_perf.config.rule import PRIMARY, Rule
from tfx_perf.core import cache_key, formatting, metrics
from tfx_perf.gate import noise
from tfx_perf.gate import run as run_lib
from tfx_perf.gate.baseline import Case, since_decision
from tfx_perf.gate.change import Change, compared
from tfx_perf.gate.decision import RuleResult, Verdict
from tfx_perf.gate.ledger import FIRST_RUNS
from tfx_perf.gate.run import Run

# The best level is the best median of this many runs in a row: the best single run is luck.
WINDOW = FIRST_RUNS
# Variance of the median of many normal samples over that of their mean.
_MEDIAN_VARIANCE = math.pi / 2
# If no blessed run is comparable, a change beyond this many times max_regression is too much.
_BUDGETS = 2.0
# Without max_regression, quality may become worse by this many tolerances in all.
_TOLERANCES = 2.0
_PER_EXAMPLE = {"examples_per_second", "energy_per_example_joules", "cost_per_million_examples"}
_OF_WORK = ("seconds", "bytes", "joules")


def drift(change: Change, *, pinned: str | None, level: float) -> Iterator[RuleResult]:
    """Checks for a change since the reference that is beyond both `max_regression` and the noise.

    The reference is the run `pinned` if it is comparable, otherwise the best level that five runs
    in a row have held. With fewer runs there is none.
    """
    known = list(change.history.values())
    if change.varies_with_the_data:  # one run says little about a level
        recent = float(np.median([*change.samples[1 - WINDOW :], change.value]))
        # Bad luck in earlier runs must not refuse a good one, either: it would refuse all later
        # runs, since a refused run never replaces the earlier ones.
        value = change.sign * min(change.sign * recent, change.sign * change.value)
        change = dataclasses.replace(change, value=value)
    if pinned is not None and pinned in change.history:
        yield _since(change, change.history[pinned], run=pinned, runs=1.0, level=level)
    elif len(known) >= WINDOW:
        reference, index = best_level(known, sign=change.sign)
        name = "the best level"
        if pinned is not None:
            name += f" (the reference run {pinned} has no comparable figure)"
        runs, run = WINDOW / _MEDIAN_VARIANCE, list(change.history)[index]
        yield _since(change, reference, run=run, name=name, runs=runs, level=level)


def best_level(figures: Sequence[float], *, sign: float) -> tuple[float, int]:
    """Returns the best median of five runs in a row, and the index of the run that has it.

    `sign` is 1 where higher is worse, else -1.
    """
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(figures, dtype=float), WINDOW)
    medians = np.median(windows, axis=1)
    best = len(medians) - 1 - int(np.argmin(sign * medians[::-1]))  # the last one
    return float(medians[best]), best + int(np.argsort(windows[best], kind="stable")[WINDOW // 2])


def _since(
    change: Change, reference: float, *, run: str, name: str = "", runs: float, level: float
) -> RuleResult:
    rule = change.rule
    scale = max(abs(reference), rule.min_baseline)
    largest = rule.largest_change
    if change.varies_with_the_data:  # that of one run leaves room for its data
        largest = _TOLERANCES * rule.smallest_change
    allowed = largest * scale
    if not change.is_exact:
        # A spread around the mean would include an improvement, and so hide that it was lost again.
        expected = change.prediction
        if len(change.samples) > 1:
            # The spread includes the runs' own errors, which `expected` adds once more. That makes
            # up for the luck in the best of several medians of short runs. The last runs may be
            # alike by chance.
            least = math.hypot(change.prior, expected.usual_error)
            known = change.samples, list(change.history.values())
            spread = max(noise.level_spread(figures, noise=least) for figures in known)
            expected = dataclasses.replace(expected, spread=spread)
        of_anchor = expected.usual_error / math.sqrt(runs)
        expected = dataclasses.replace(expected, count=runs, center_error=of_anchor)
        excess = change.excess(expected, expected.quantile(level), start=reference)
        allowed = max(allowed, excess)
    refused = change.sign * (change.value - reference) > allowed
    bound = reference + change.sign * allowed if math.isfinite(allowed) else None
    relative = (change.value - reference) / scale if scale else None
    value, level_then = (
        formatting.format_value(change.key, figure) for figure in (change.value, reference)
    )
    end = "what noise explains" if bound is None else formatting.format_value(change.key, bound)
    amount = "" if relative is None else f"{formatting.signed_percent(relative)}% "
    return RuleResult(
        metric=change.key,
        kind="drift",
        verdict=Verdict.REGRESSION if refused else Verdict.PASS,
        reason=(
            f"{value} is {amount}against {name or f'run {run}'}, {level_then}; the total change "
            f"{'exceeds' if refused else 'is within'} {end}."
        ),
        value=change.value,
        baseline=reference,
        change=relative,
        tolerance=largest,
        lowest=bound if change.sign < 0 else None,
        highest=bound if change.sign > 0 else None,
        reference_run=run,
    )


def far_worse(key: str, rule: Rule, case: Case) -> RuleResult | None:
    """Returns a refusal of a figure without comparable runs that is too bad to be blessed unseen.

    The difference may explain a factor: a step on a hundred times the batch may take a hundred
    times as long. Beyond that factor and twice max_regression, a person has to bless the figure.

    It is compared with the median of the last blessed runs in one environment, and with the best
    level that five blessed runs in a row have held in any environment: otherwise it could get worse
    by twice max_regression with every version.
    """
    candidate, known = case.candidate, case.having(key)
    value = candidate.figure(key)
    if value is None or not known:
        return None
    sign = rule.worse_sign(key)
    figures = [_explained(key, run, candidate, sign=sign) for run in known]
    begin = since_decision(key, figures, runs=known, rule=rule, ledger=case.ledger)
    last = known[-1]
    recent = [
        (run, figure)
        for run, figure in list(zip(known, figures, strict=True))[begin:]
        if not run_lib.differences(run.environment, last.environment)
    ][-case.settings.baseline_runs :]
    level = float(np.median([figure for _, figure in recent]))
    if len(figures[begin:]) >= WINDOW:
        best, _ = best_level(figures[begin:], sign=sign)
        level = sign * min(sign * level, sign * best)
    bound = level + sign * _BUDGETS * rule.largest_change * max(abs(level), rule.min_baseline)
    if sign * value <= sign * bound:
        return None
    before = float(np.median([run.figures.get(key, figure) for run, figure in recent]))
    scale = max(abs(before), rule.min_baseline)
    comparison = compared(key, value, "the last blessed runs'", before)
    # If none is comparable, the headline says what differs.
    changed = _changed(last, candidate) if case.comparable else ""
    at_most = formatting.format_value(key, level)
    explain = f"explain at most {at_most}" if sign * level > sign * before else "do not explain it"
    return RuleResult(
        metric=key,
        kind="change",
        verdict=Verdict.INCOMPARABLE,
        reason=(
            f"{comparison}, and the differences{changed} {explain}; it is worse by more than twice "
            f"the max_regression of {rule.largest_change:.0%}. If the change is intended, "
            "`tfx-perf bless` accepts it."
        ),
        value=value,
        baseline=before,
        change=(value - before) / scale if scale else None,
        tolerance=rule.tolerance,
        lowest=bound if sign < 0 else None,
        highest=bound if sign > 0 else None,
    )


def _explained(key: str, run: Run, candidate: Run, *, sign: float) -> float:
    """Returns a blessed run's figure, made as bad as the candidate's differences may explain."""
    figure = run.figure(key) or 0.0
    factor = max(1.0, _factor(key, run, candidate))
    if sign < 0:
        return figure / factor if figure > 0 else figure * factor
    return figure + abs(figure) * (factor - 1)


def _factor(key: str, run: Run, candidate: Run) -> float:
    """Returns how many times as bad the sizes of batch, model and training may make a figure."""
    unit = metrics.lookup(key).unit
    fields = ("global_batch_size", *run_lib.SIZE_FIELDS)
    before, now = (run_lib.sizes(each.environment, fields=fields) for each in (run, candidate))
    batch, parameters, flops = (
        now[field] / before[field] if field in before and field in now else 1.0 for field in fields
    )
    if unit == "loss":
        trained = (run.trained_steps or 0.0), (candidate.trained_steps or 0.0)
        return trained[0] / trained[1] / batch if all(trained) else 1.0
    if key in metrics.SHARES_OF_A_STEP:
        return (run.figure(PRIMARY) or 0.0) / (candidate.figure(PRIMARY) or 1.0)
    if unit not in _OF_WORK and key not in _PER_EXAMPLE:
        return 1.0
    # Without FLOPs, the work of a step is unknown: it is taken to be examples times parameters.
    is_counted = all("flops_per_step" in each for each in (before, now))
    work = max(1.0, batch, parameters, flops if is_counted else batch * parameters)
    return work / batch if key in _PER_EXAMPLE else work


def _changed(last: Run, candidate: Run) -> str:
    """Returns what differs, in parentheses with a space in front; empty if nothing does."""
    changes = cache_key.differences(last.environment, candidate.environment)
    before, now = (
        cache_key.ABSENT if steps is None else f"{steps:g}"
        for steps in (last.trained_steps, candidate.trained_steps)
    )
    if before != now:
        changes["trained steps"] = before, now
    return f" ({cache_key.describe(changes)})" if changes else ""
