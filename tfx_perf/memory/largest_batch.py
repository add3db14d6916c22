"""The largest batch that may be claimed to fit: one that was trained on, or a smaller one.

Beyond the batches that were trained on, a line is wrong by tens of percent and ignores a model's
limit of rows. So the line through footprints only says which batch to train on next, and how far
below the largest one the limit is. The line through the allocator's peaks of steps without XLA says
which steps must not be run at all.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tfx_perf.core import formatting
from tfx_perf.memory.record import Attempt, Footprint, Prediction, StepMemory

ENOUGH = 2**20
"""The largest batch to train on if the number of examples is unknown."""

STEPS = 4
"""How many steps are trained on a batch: the first one may trace, the others are measured."""

_REACH = 8  # the next batch may be this many times the largest that was trained on
_FIRST_REACH = 2 * _REACH  # likewise, for the second batch that is trained on
_FAR_SHARE = 0.25  # a batch that takes a smaller share of the limit is far from it
_NEAR = 0.75  # a batch whose size is within this ratio of another's need not be trained on, too
_CAUTION = 0.9  # share of the bound that is trained on
_RESOLUTION = 0.05  # share of a footprint or a peak that rounding of sizes can mimic
# Random differences between processes: arenas of malloc, threads' stacks.
_NOISE_BYTES = 2**25
_OVER = ("out of memory", "killed")
_RAISED = "the step raised "


class Claim(NamedTuple):
    """The largest batch (None: unknown), whether larger ones may fit, and why, in a sentence."""

    largest: int | None
    is_lower_bound: bool
    remark: str


def claim(
    footprints: Sequence[Footprint],
    *,
    limit_bytes: int,
    most: int = ENOUGH,
    steps: Sequence[StepMemory] = (),
) -> Claim:
    """Returns the claim from footprints in any order; only `steps` without a figure count."""
    tried: tuple[Attempt, ...] = (*footprints, *steps)
    taken = _taken(footprints)
    if not taken:
        endings = "; ".join(_endings(tried, math.inf))
        return Claim(None, False, endings or "no batch size was trained on")
    base = max(taken)
    bound, grows = _bound(taken, limit_bytes)
    if not grows and taken[base] > limit_bytes:
        remark = f"batch {base} alone takes {formatting.format_bytes(taken[base])}"
        return Claim(None, False, remark)
    fits = min(bound, base)
    is_lower_bound = not grows or bound > fits / _NEAR
    refuting = {item.batch_size for item in tried if item.status in _OVER}
    refuting |= {size for size, size_bytes in taken.items() if size_bytes > limit_bytes}
    over = min(refuting, default=None)
    if over is not None and fits >= over:
        # The line is refuted: take the largest batch that did fit.
        fits = max((size for size in taken if size < over), default=0)
        is_lower_bound = True
    parts = [f"a batch of {base:,} was trained on and took {formatting.format_bytes(taken[base])}"]
    if grows and bound > base:
        parts.append(f"a straight line says that {bound / base:.2g} times as many fit")
    if base >= most:
        parts.append("there are no more examples")
    return Claim(fits or None, is_lower_bound, "; ".join([*parts, *_endings(tried, base)]))


def next_size(
    footprints: Sequence[Footprint],
    *,
    limit_bytes: int,
    most: int = ENOUGH,
    steps: Sequence[StepMemory] = (),
) -> int | None:
    """Returns the batch to train on next for a claim, below any without a figure; None if none."""
    taken = _taken(footprints)
    if not taken or any(item.status in ("killed", "timed out") for item in footprints):
        return None
    base = max(taken)
    known = max([base, *(step.batch_size for step in steps if step.status == "measured")])
    bound = _CAUTION * _bound(taken, limit_bytes)[0]
    tried: tuple[Attempt, ...] = (*footprints, *steps)
    ended = min(
        (item.batch_size for item in tried if item.status != "measured" and item.batch_size > base),
        default=math.inf,
    )
    # With one footprint, the bound lets everything grow with the batch, so a far reach is safe.
    reach = _FIRST_REACH if len(taken) == 1 else _REACH
    if ended == math.inf and base >= _FIRST_REACH * min(taken) and bound > reach * known:
        return None  # the limit is far away
    target = int(min(reach * known, max(base, most), bound))
    if ended <= target:
        target = known if base < known < ended else int(math.sqrt(base * ended))
    # A batch over the limit says nothing of a smaller one, which with XLA may take even more.
    done = {*taken} if taken[base] <= limit_bytes else {*taken} - {base}
    done |= {item.batch_size for item in tried if item.status != "measured"}
    if target < 1 or any(_NEAR * target <= size <= min(base, target / _NEAR) for size in done):
        return None
    return target


def next_quick_size(
    footprints: Sequence[Footprint], *, most: int = ENOUGH, steps: Sequence[StepMemory] = ()
) -> int | None:
    """Returns `next_size` if it is new, quick and far from the limit; otherwise None."""
    limit_bytes = min((item.limit_bytes or 0 for item in footprints), default=0)
    size = next_size(footprints, limit_bytes=limit_bytes, most=most, steps=steps)
    is_new = all(item.batch_size != size for item in (*footprints, *steps))
    if size is None or not (is_new and is_quick(footprints, size) and is_far(footprints, size)):
        return None
    return size


def is_quick(footprints: Sequence[Footprint], size: int) -> bool:
    """Returns whether a few steps on a batch take less time than all footprints so far."""
    last = largest(footprints)
    steps_seconds = STEPS * (last.step_seconds or 0.0) * size / last.batch_size
    return steps_seconds < sum(item.seconds or math.inf for item in footprints)


def is_far(footprints: Sequence[Footprint], size: int) -> bool:
    """Returns whether a batch stays far below the limit, even if all grows with the batch."""
    last = largest(footprints)
    taken_bytes = (last.taken_bytes or 0) * size / last.batch_size
    return taken_bytes < _FAR_SHARE * (last.limit_bytes or 0)


def peak_line(steps: Iterable[StepMemory]) -> tuple[Prediction | None, str]:
    """Returns the growth of a plain step's peak, by least squares, or why it is unclear."""
    known = sorted(
        (step.batch_size, step.peak_bytes, step.scatter_bytes or 0)
        for step in steps
        if step.plan == "plain" and step.peak_bytes is not None
    )
    if len(known) < 2:
        return None, "fewer than two batch sizes could be measured"
    sizes, peaks, scatters = (np.array(column, dtype=float) for column in zip(*known, strict=True))
    if peaks[-1] - peaks[0] <= max(2 * scatters.max(), _RESOLUTION * peaks[0]):
        return None, (
            f"from batch size {known[0][0]} to {known[-1][0]} the peak grows no more than it "
            "varies or than can be resolved; set memory.batch_sizes further apart"
        )
    slope, intercept = np.polyfit(sizes, peaks, deg=1)
    deviation = np.abs(intercept + slope * sizes - peaks) / peaks
    line = Prediction(
        fixed_bytes=float(intercept),
        bytes_per_example=float(slope),
        deviation_ratio=float(deviation.max()),
    )
    return line, ""


def largest(footprints: Sequence[Footprint]) -> Footprint:
    """Returns the footprint of the largest batch that has one."""
    trained = (item for item in footprints if item.status == "measured")
    return max(trained, key=lambda item: item.batch_size)


def _taken(footprints: Sequence[Footprint]) -> dict[int, int]:
    return {
        item.batch_size: item.taken_bytes
        for item in footprints
        if item.status == "measured" and item.taken_bytes is not None
    }


def _bound(taken: dict[int, int], limit_bytes: int) -> tuple[int, bool]:
    """Returns the batch that fits by the steepest growth above noise, and whether there is any.

    Without such growth, everything is assumed to grow with the batch.
    """
    base = max(taken)
    slopes = [
        (taken[base] - size_bytes) / (base - size)
        for size, size_bytes in taken.items()
        if taken[base] - size_bytes > max(_NOISE_BYTES, _RESOLUTION * size_bytes)
    ]
    if not slopes:
        return int(base * limit_bytes / max(1, taken[base])), False
    return max(0, int(base + (limit_bytes - taken[base]) / max(slopes))), True


def _endings(tried: Sequence[Attempt], base: float) -> list[str]:
    """Returns how batches without a figure ended; of errors above `base` only the first."""
    ended = sorted(
        (item for item in tried if item.status not in ("measured", "not run")),
        key=lambda item: item.batch_size,
    )
    endings: list[str] = []
    for item in ended:
        if item.batch_size > base and item.reason.startswith(_RAISED):
            endings.append(
                f"above {base:,} rows, at {item.batch_size:,} at the latest, the model raises "
                f"{item.reason.removeprefix(_RAISED)}"
            )
            break
        endings.append(f"batch {item.batch_size:,}: {item.reason}")
    return endings
