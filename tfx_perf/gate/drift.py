"""The anchor: what many small changes may add up to.

A gate that compares with the last blessed runs only lets any slowdown through in small
steps: each is within the margin, and becomes the next one's baseline.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from tfx_perf import formatting
from tfx_perf.gate import level as level_lib
from tfx_perf.gate.change import Change
from tfx_perf.gate.outcome import Outcome, Verdict

# The best level is the best median of so many runs in a row: the best single run is luck.
WINDOW = 5
# Variance of the median of many normal samples over that of their mean.
_MEDIAN_VARIANCE = math.pi / 2


def check(change: Change, *, pinned: str | None, level: float) -> Iterator[Outcome]:
    """Checks the change since the anchor against the rule's budget.

    The anchor is the pinned run if it is comparable, else the best level that five runs in a
    row have held; there is none with fewer runs.

    Args:
        change: the comparison with the last runs; its noise holds here too.
        pinned: run id; None for the best level.
        level: of significance; a change must be beyond both budget and noise.
    """
    known = list(change.history.values())
    if change.varies_with_the_data:  # one run says little of a level
        recent = float(np.median([*change.samples[1 - WINDOW :], change.value]))
        # Nor may bad luck of the runs before refuse a good one: it would refuse all that follow,
        # since a refused run is never one of those before.
        value = change.sign * min(change.sign * recent, change.sign * change.value)
        change = dataclasses.replace(change, value=value)
    if pinned is not None and pinned in change.history:
        anchor = change.history[pinned]
        yield _outcome(change, anchor=anchor, name=f"run {pinned}", runs=1.0, level=level)
    elif len(known) >= WINDOW:
        anchor = best_level(known, sign=change.sign)
        runs = WINDOW / _MEDIAN_VARIANCE
        name = "the best level"
        if pinned is not None:
            name += f" (the anchor {pinned} has no comparable figure)"
        yield _outcome(change, anchor=anchor, name=name, runs=runs, level=level)


def best_level(figures: Sequence[float], *, sign: float) -> float:
    """Returns the best median of five runs in a row.

    Args:
        figures: at least five, oldest first.
        sign: 1 where higher is worse, else -1.
    """
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(figures, dtype=float), WINDOW)
    return float(sign * np.min(sign * np.median(windows, axis=1)))


def _outcome(change: Change, *, anchor: float, name: str, runs: float, level: float) -> Outcome:
    scale = max(abs(anchor), change.rule.scale)
    allowed = change.rule.largest_change * scale
    if not change.is_exact:
        # Around the mean, what an improvement adds would hide that the improvement is lost again.
        noise = change.prediction
        if len(change.samples) > 1:
            # The runs' own errors are in it, too, and once more in `noise`. Of short runs the best
            # of several medians is luck, which that makes up for.
            spread = level_lib.spread(
                change.samples, noise=math.hypot(change.prior, noise.usual_error)
            )
            noise = dataclasses.replace(noise, spread=spread)
        allowed = max(allowed, noise.half_width(level, count=runs))
    refused = change.sign * (change.value - anchor) > allowed
    bound = anchor + change.sign * allowed
    relative = (change.value - anchor) / scale if scale else None
    value, level_then, end = (
        formatting.format_value(change.key, figure) for figure in (change.value, anchor, bound)
    )
    amount = "" if relative is None else f"{formatting.signed_percent(relative)}% "
    return Outcome(
        metric=change.key,
        kind="drift",
        verdict=Verdict.REGRESSION if refused else Verdict.PASS,
        reason=(
            f"{value} is {amount}against {name}, {level_then}; all changes together "
            f"{'go beyond' if refused else 'are within'} {end}."
        ),
        value=change.value,
        baseline=anchor,
        change=relative,
        margin=change.rule.largest_change,
        lowest=bound if change.sign < 0 else None,
        highest=bound if change.sign > 0 else None,
    )
