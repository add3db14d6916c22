"""Makes a failing case smaller."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tests.fuzzing.cases import JsonCase

_Kind = TypeVar("_Kind", bound=JsonCase)


def shrunk(
    case: _Kind,
    fails: Callable[[_Kind], bool],
    *,
    simplest: _Kind,
    consistent: Callable[[_Kind], _Kind],
    limit: int,
) -> _Kind:
    """Returns a simpler case that still fails.

    Every field goes towards its default, one after the other, as long as the failure stays.

    Args:
        case: a failing case.
        fails: whether a case fails in the same way.
        simplest: what the fields go towards.
        consistent: the nearest case that is worth running.
        limit: of the calls of `fails`.
    """
    tried = {case}
    for field in dataclasses.fields(case):
        smaller = True
        while smaller:
            smaller = None
            for value in simpler(getattr(case, field.name), getattr(simplest, field.name)):
                each = consistent(dataclasses.replace(case, **{field.name: value}))
                if each in tried:
                    continue
                if len(tried) > limit:
                    return case
                tried.add(each)
                if fails(each):
                    case = smaller = each
                    break
    return case


def simpler(value: Any, simplest: Any) -> Iterator[Any]:
    """Yields simpler values of a field, the simplest first."""
    if value == simplest:
        return
    yield simplest
    if isinstance(value, tuple) and isinstance(simplest, tuple):
        if len(value) > 1:
            yield from ((item,) for item in value)
        if len(value) > 2:
            yield from (value[:place] + value[place + 1 :] for place in range(len(value)))
        for place, item in enumerate(value):
            if isinstance(item, JsonCase):
                for each in _simpler_cases(item):
                    yield (*value[:place], each, *value[place + 1 :])
    elif type(value) is int and type(simplest) is int:
        smaller = (number for number in (1, 2, 3, 10, 100, value // 2) if number < value)
        yield from (number for number in smaller if number > simplest)


def _simpler_cases(item: JsonCase) -> Iterator[JsonCase]:
    simplest = type(item)()
    for field in dataclasses.fields(item):
        for value in simpler(getattr(item, field.name), getattr(simplest, field.name)):
            yield dataclasses.replace(item, **{field.name: value})
