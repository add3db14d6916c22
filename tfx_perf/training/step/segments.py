"""Where to cut a forward pass, so that little crosses from one part into another."""

import bisect
import dataclasses
import itertools
from collections.abc import Sequence

_MOST = 32  # segments that "auto" looks at


@dataclasses.dataclass(frozen=True)
class Activation:
    """A tensor of the forward pass.

    Attributes:
        made: position of the operation that makes it.
        last_used: position of the last operation of the forward pass that reads it.
        size: in bytes, or in proportion to them.
        is_saved: whether the backward pass reads it.
    """

    made: int
    last_used: int
    size: float
    is_saved: bool


def cut(activations: Sequence[Activation], *, segments: int | str) -> list[int]:
    """Returns the positions at which segments begin, the first one's excepted.

    Args:
        activations: in the order of `made`.
        segments: how many are wanted, there may be fewer; `auto` takes the number with the
            smallest `cost`.
    """
    if segments != "auto":
        return _cut(activations, int(segments))
    ways = [_cut(activations, count) for count in range(2, _MOST + 1)]
    return min(ways, key=lambda cuts: (cost(activations, cuts), len(cuts)))


def cost(activations: Sequence[Activation], cuts: Sequence[int]) -> float:
    """Returns what is held at once: all that cross a cut, and the rest of the largest segment."""
    crossing, inside = 0.0, [0.0] * (len(cuts) + 1)
    for activation in activations:
        segment = bisect.bisect_right(cuts, activation.made)
        if bisect.bisect_right(cuts, activation.last_used) > segment:
            crossing += activation.size
        elif activation.is_saved:
            inside[segment] += activation.size
    return crossing + max(inside)


def _cut(activations: Sequence[Activation], count: int) -> list[int]:
    """Cuts near equal shares of what is saved, where the least crosses."""
    end = 1 + max((activation.last_used for activation in activations), default=0)
    saved, crossing = [0.0] * (end + 1), [0.0] * (end + 2)
    for activation in activations:
        saved[activation.made + 1] += activation.size * activation.is_saved
        crossing[activation.made + 1] += activation.size
        crossing[activation.last_used + 1] -= activation.size
    saved = list(itertools.accumulate(saved))  # by what is made before each position
    crossing = list(itertools.accumulate(crossing))
    share, cuts = saved[-1] / count, set()
    for index in range(1, count):
        target = share * index
        window = range(
            max(1, bisect.bisect_left(saved, target - share / 2)),
            min(end, bisect.bisect_right(saved, target + share / 2)),
        )
        if window:
            cuts.add(min(window, key=lambda at: (crossing[at], abs(saved[at] - target))))
    return sorted(cuts)
