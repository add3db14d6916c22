"""A chain of layers is cut where the fewest bytes cross: no assignment that fits is better."""

import itertools
import random

import pytest

from tfx_perf.distribute.model_parallel.layer_chain import Link, assigned, crossing_bytes


def best_by_trying_all(sizes, links, capacities):
    """Returns the cost of the best assignment of consecutive layers, None if none fits."""
    costs = []
    for devices in itertools.combinations_with_replacement(range(len(capacities)), len(sizes)):
        held = [0] * len(capacities)
        for size, device in zip(sizes, devices, strict=True):
            held[device] += size
        shares = [one / other for one, other in zip(held, capacities, strict=True)]
        if max(shares) <= 1:
            costs.append((crossing_bytes(links, devices), max(shares)))
    return min(costs, default=None)


@pytest.mark.parametrize("seed", range(40))
def test_it_is_as_good_as_the_best_assignment(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 7)
    sizes = [draw.randint(0, 9) for _ in range(count)]
    capacities = [draw.randint(4, 20) for _ in range(draw.randint(1, 4))]
    links = []
    for source in range(count - 1):
        later = range(source + 1, count)
        targets = draw.sample(later, draw.randint(1, min(3, len(later))))
        links.append(Link(source, frozenset(targets), draw.randint(0, 5)))
    devices = assigned(sizes, links, capacities=capacities)
    best = best_by_trying_all(sizes, links, capacities)
    if devices is None:
        assert best is None
        return
    assert devices == sorted(devices)
    held = [
        sum(size for size, at in zip(sizes, devices, strict=True) if at == device)
        for device in range(len(capacities))
    ]
    shares = [one / other for one, other in zip(held, capacities, strict=True)]
    assert (crossing_bytes(links, devices), max(shares)) == best


def test_a_skip_connection_crosses_once_to_each_device_that_reads_it():
    links = [Link(0, frozenset({1, 2, 3}), 10)]
    assert crossing_bytes(links, [0, 0, 1, 1]) == 10
    assert crossing_bytes(links, [0, 1, 1, 2]) == 20
