"""Which cases of a costly parametrized test `make test` runs; `make test-slow` runs the others.

A test whose parameters are multiplied (model x optimizer x Keras package) promises the same of
every case, and most mistakes show in each case with a certain value, whatever the other values.
So for a test or a module that is marked

* `each_choice`, `make test` keeps a smallest set of cases in which each value of each parameter
  occurs ("each-choice coverage" in combinatorial testing). The two Keras packages take turns:
  both occur where there are several cases, and one, drawn by the test's name, where there are
  none but these two, so that over the tests of a module both occur about equally;
* `one_case`, where even that takes too long, one case, drawn by the test's name: over the tests
  of a module all values occur.

The nearest marker holds: a test's own before its module's. What is kept depends on the test's
name and parameters alone, so that a test that is run by itself runs the same cases. Without a
marker, as is right for tests of milliseconds, every case is kept. All cases of one file:
`python -m pytest -m "" tests/training/test_loop.py`.
"""

import collections
import itertools
import zlib
from collections.abc import Sequence

import pytest

MARKERS = ("each_choice", "one_case")
KERAS_PACKAGES = ("keras", "tf_keras")


def marker_of(item: pytest.Item) -> str | None:
    """Returns the nearest of the two markers."""
    names = (marker.name for marker in item.iter_markers())
    return next((name for name in names if name in MARKERS), None)


def draw(name: str) -> int:
    """Returns a number that a name alone decides, unlike `hash`."""
    return zlib.crc32(name.encode())


def each_choice(cases: Sequence[Sequence[str]]) -> list[int]:
    """Returns the positions of a smallest set of cases in which each value occurs.

    Of cases that add equally many values, the one whose values were kept least often is taken,
    and among these the first.

    Args:
        cases: the values of each, parameter by parameter; a Keras package need not occur.
    """
    cases = [set(enumerate(case)) for case in cases]
    missing = {value for value in set().union(*cases) if value[1] not in KERAS_PACKAGES}
    uses, kept = collections.Counter(), []
    while missing or not kept:
        best = min(
            (n for n in range(len(cases)) if n not in kept),
            key=lambda n: (-len(cases[n] & missing), sum(uses[value] for value in cases[n])),
        )
        kept.append(best)
        missing -= cases[best]
        uses.update(cases[best])
    return kept


def kept(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Returns which of a marked test's cases `make test` runs."""
    items = sorted(items, key=lambda item: draw(item.nodeid))
    if marker_of(items[0]) == "one_case":
        return items[:1]
    # The ids of each decorator and each fixture, where a row of several arguments is one value.
    return [items[n] for n in each_choice([item.callspec._idlist for item in items])]


def mark_dropped(items: Sequence[pytest.Item]) -> None:
    """Marks as slow what is not kept; what is slow anyway is not looked at."""
    candidates = [
        item
        for item in items
        if hasattr(item, "callspec") and marker_of(item) and not item.get_closest_marker("slow")
    ]
    for _, group in itertools.groupby(candidates, lambda item: item.nodeid.partition("[")[0]):
        cases = list(group)
        for item in set(cases).difference(kept(cases)):
            item.add_marker("slow")


def costly_first(items: list[pytest.Item]) -> None:
    """Moves modules with a marker to the front, lest a long one is left for one worker alone."""
    costly = {item.path for item in items if marker_of(item)}
    items.sort(key=lambda item: item.path not in costly)
