"""Where to cut a chain of layers, so that its parts fit devices and few bytes go between them."""

import dataclasses
import math
from collections.abc import Sequence

_Cost = tuple[int, float]  # bytes that cross, and how full the fullest device is, 0-1


@dataclasses.dataclass(frozen=True)
class Link:
    """What a layer hands to others (by index), in bytes for each device that has any of them."""

    source: int
    targets: frozenset[int]
    bytes: int


def assigned(
    sizes: Sequence[int], links: Sequence[Link], *, capacities: Sequence[int]
) -> list[int] | None:
    """Returns the device of each layer, None if none fits; a device has consecutive layers.

    Sizes and capacities are bytes, in the order in which layers run and devices fill. Of the
    fitting assignments it takes one in which the fewest bytes cross; of these, the one whose
    fullest device is the least full. The dynamic program for contiguous parts of a chain is
    Bokhari's (Partitioning Problems in Parallel, Pipelined, and Distributed Computing, IEEE
    Transactions on Computers 37, 1988), with bytes instead of seconds, in O(devices · layers²).
    """
    count = len(sizes)
    crossing = _crossing(count, links)
    best: list[_Cost | None] = [(0, 0.0)] + [None] * count
    begins: list[list[int]] = []  # by device and number of layers: where its part begins
    for capacity in capacities:
        costs: list[_Cost | None] = [None] * (count + 1)
        begin_of = [0] * (count + 1)
        for begin, before in enumerate(best):
            if before is None:
                continue
            held = 0
            for end in range(begin, count + 1):
                held += sizes[end - 1] if end > begin else 0
                if held > capacity:
                    break
                cost = before[0] + crossing[begin][end], max(before[1], held / capacity)
                found = costs[end]
                if found is None or cost < found:
                    costs[end], begin_of[end] = cost, begin
        best = costs
        begins.append(begin_of)
    if best[count] is None:
        return None
    devices: list[int] = []
    for device in reversed(range(len(capacities))):
        begin = begins[device][count]
        devices[:0] = [device] * (count - begin)
        count = begin
    return devices


def crossing_bytes(links: Sequence[Link], devices: Sequence[int]) -> int:
    """Returns the bytes that go from one device to another; to each that takes them, once."""
    return sum(
        link.bytes * len({devices[target] for target in link.targets} - {devices[link.source]})
        for link in links
    )


def _crossing(count: int, links: Sequence[Link]) -> list[list[int]]:
    """Returns, by begin and end of a part, the bytes that come into it from layers before."""
    found = [[0] * (count + 1) for _ in range(count + 1)]
    for begin in range(count):
        # A link comes in with the first of its targets that is in the part.
        added = [0] * count
        for link in links:
            first = min((t for t in link.targets if t >= begin), default=math.inf)
            if link.source < begin and first < math.inf:
                added[int(first)] += link.bytes
        for end in range(begin, count):
            found[begin][end + 1] = found[begin][end] + added[end]
    return found
