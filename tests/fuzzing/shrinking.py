"""Makes a failing case smaller."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from tests.fuzzing.cases import JsonCase


def shrunk(checker: Any, case: Any, signature: str) -> Any:
    """Returns a simpler case that fails with the same signature.

    Every field goes towards its default, one after the other, as long as the failure stays.

    Args:
        checker: checks cases; a simpler one becomes the nearest `consistent()` one.
        case: a failing case.
        signature: of the failure.
    """
    tried, simplest = {case}, checker.simplest(case)
    for field in dataclasses.fields(case):
        smaller = True
        while smaller:
            smaller = None
            for value in simpler(getattr(case, field.name), getattr(simplest, field.name)):
                each = dataclasses.replace(case, **{field.name: value}).consistent()
                if each in tried:
                    continue
                if len(tried) > checker.most_checks:
                    return case
                tried.add(each)
                found = checker.check(each)
                if found and found.signature == signature:
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
