"""The largest batch that may be claimed to fit, by what training took at a few sizes.

A straight line far beyond what was measured is wrong by tens of percent. So a claim goes no
further than 8 times the largest batch that was trained on, and a batch near to it is trained on
before, where there is time and memory for that. Nor does it go beyond the examples that there are:
of a small model, tens of millions may fit.
"""

import dataclasses
import math
from collections.abc import Sequence

from tfx_perf import formatting
from tfx_perf.memory.record import Footprint, Prediction, StepMemory

REACH = 8
"""So many times the largest batch that was trained on, a claim may be."""

_FAR_SHARE = 0.25  # of the limit
_FIRST_REACH = 2 * REACH  # of the second batch that is trained on
ENOUGH = 2**20
"""Larger batches are neither claimed nor trained on where the number of examples is not known."""

_NEAR = 0.75  # of a claim: a batch that was trained on so near to it bears it out
_CAUTION = 0.9  # of the claim: what is trained on to bear it out
_RESOLUTION = 0.05  # of a footprint
# What one process takes more than another for no reason: arenas of malloc, threads' stacks.
_NOISE_BYTES = 2**25
_OVER = ("out of memory", "killed")


@dataclasses.dataclass(frozen=True)
class Claim:
    """What can be said of the largest batch.

    Attributes:
        largest: the batch size; None if nothing can be said.
        is_lower_bound: whether larger ones may fit, too.
        line: growth of the footprint; None if it does not stand out.
        remark: what `largest` rests on, or why there is none; a sentence without its full stop.
    """

    largest: int | None
    is_lower_bound: bool
    line: Prediction | None
    remark: str


def claim(
    footprints: Sequence[Footprint],
    *,
    limit_bytes: int,
    most: int = ENOUGH,
    steps: Sequence[StepMemory] = (),
) -> Claim:
    """Returns what the footprints bear out.

    Args:
        footprints: at different batch sizes, in any order.
        limit_bytes: what may be taken.
        most: examples that there are; no larger batch is claimed, unless it was trained on.
        steps: run otherwise; those without a figure count.
    """
    tried: tuple[Footprint | StepMemory, ...] = (*footprints, *steps)
    taken = _taken(footprints)
    if not taken:
        return Claim(None, False, None, _endings(tried) or "no batch size was trained on")
    line = _line(taken)
    base = max(taken)
    fits, is_lower_bound = _bound(taken, line, limit_bytes), line is None
    if line is None and taken[base] > limit_bytes:
        remark = f"batch {base} alone takes {formatting.format_bytes(taken[base])}"
        return Claim(None, False, None, remark)
    reach = min(REACH * base, max(base, most))
    if fits > reach:
        fits, is_lower_bound = reach, True
    # One that failed otherwise says nothing of smaller ones.
    over = min(
        (
            item.batch_size
            for item in tried
            if item.status in _OVER or (item.status == "failed" and item.batch_size > base)
        ),
        default=None,
    )
    if over is not None and fits >= over:
        # The largest of those that did fit; the line is refuted.
        fits = max((size for size in taken if size < over), default=0)
        is_lower_bound = True
    remark = _remark(tried, taken, fits, line)
    if fits == most > base:
        remark = f"{remark}; there are no more examples"
    return Claim(fits, is_lower_bound, line, remark)


def next_size(
    footprints: Sequence[Footprint],
    *,
    limit_bytes: int,
    most: int = ENOUGH,
    steps: Sequence[StepMemory] = (),
) -> int | None:
    """Returns the batch to train on next, to bear a claim out; None if there is none.

    Args:
        footprints: so far, at least one of them measured.
        limit_bytes: what may be taken.
        most: no larger batch is trained on.
        steps: run otherwise; nothing as large as one without a figure is trained on.
    """
    taken = _taken(footprints)
    if not taken or len(taken) < len(footprints):
        return None
    line, base = _line(taken), max(taken)
    known = max([base, *(step.batch_size for step in steps if step.status == "measured")])
    bound = _CAUTION * _bound(taken, line, limit_bytes)
    # Of one footprint the bound takes everything to grow with the batch: so far is safe.
    reach = _FIRST_REACH if len(taken) == 1 else REACH
    if base >= _FIRST_REACH * min(taken) and bound > reach * known:
        return None  # the limit is far beyond any claim
    target = int(min(reach * known, max(base, most), bound))
    ended = min((step.batch_size for step in steps if step.status != "measured"), default=None)
    if ended is not None:
        target = min(target, (base + ended) // 2)
    if target < 1 or any(_NEAR * target <= size <= target / _NEAR for size in taken):
        return None
    return target


def second_size(first: Footprint, *, most: int = ENOUGH) -> int | None:
    """Returns the second batch to train on, where another process may be at work beside.

    None if it might come anywhere near the limit, or its first step take longer than all of the
    first batch's steps: if all that was taken grew with the batch.

    Args:
        first: of the module's own batch.
        most: see `next_size`.
    """
    limit_bytes = first.limit_bytes or 0
    size = next_size([first], limit_bytes=limit_bytes, most=most)
    if size is None or first.taken_bytes is None:
        return None
    growth = size / first.batch_size
    is_small = growth * first.taken_bytes < _FAR_SHARE * limit_bytes
    is_quick = growth * (first.step_seconds or 0.0) < (first.seconds or math.inf)
    return size if is_small and is_quick else None


def _taken(footprints: Sequence[Footprint]) -> dict[int, int]:
    return {
        item.batch_size: item.taken_bytes
        for item in footprints
        if item.status == "measured" and item.taken_bytes is not None
    }


def _bound(taken: dict[int, int], line: Prediction | None, limit_bytes: int) -> int:
    """Returns the batch that fits by the line; without one, if everything grew with the batch."""
    if line:
        return line.largest_batch_size(limit_bytes)
    base = max(taken)
    return int(base * limit_bytes / max(1, taken[base]))


def _line(taken: dict[int, int]) -> Prediction | None:
    """Returns the steepest line through the largest batch and another one that stands out."""
    base = max(taken)
    slopes = [
        (taken[base] - size_bytes) / (base - size)
        for size, size_bytes in taken.items()
        if taken[base] - size_bytes > max(_NOISE_BYTES, _RESOLUTION * size_bytes)
    ]
    if not slopes:
        return None
    slope = max(slopes)
    fixed_bytes = taken[base] - slope * base
    misses = (abs(fixed_bytes + slope * size - found) / found for size, found in taken.items())
    return Prediction(
        fixed_bytes=fixed_bytes, bytes_per_example=slope, deviation_ratio=max(misses)
    )


def _remark(
    tried: Sequence[Footprint | StepMemory],
    taken: dict[int, int],
    fits: int,
    line: Prediction | None,
) -> str:
    base = max(taken)
    parts = [f"a batch of {base:,} was trained on and took {formatting.format_bytes(taken[base])}"]
    if fits > base / _NEAR:
        way = "a straight line predicts that" if line else "even if all of it grew with the batch,"
        parts.append(f"{way} {fits / base:.2g} times as many fit")
        if fits >= REACH * base:
            parts.append("nothing further is looked at")
    endings = _endings(tried)
    return "; ".join([*parts, endings] if endings else parts)


def _endings(tried: Sequence[Footprint | StepMemory]) -> str:
    """Returns how those ended that have no figure, but for those not run."""
    return "; ".join(
        f"batch {item.batch_size:,}: {item.reason}"
        for item in tried
        if item.status not in ("measured", "not run")
    )
