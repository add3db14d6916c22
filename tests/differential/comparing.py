"""Compares a training with Keras' `fit`; a difference has a signature, to be grouped by."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzzing.differences import Difference, gist
from tests.fuzzing.forks import Ended

from . import promises
from .cases import BATCH_SIZE, Case


def difference(case: Case, expected: Ended, found: Ended, *, resumed: bool) -> Difference | None:
    """Returns how `found` breaks the promise; None if it keeps it.

    Args:
        case: the case.
        expected: Keras' `fit`.
        found: tfx-perf.
        resumed: whether it went on from a checkpoint.
    """
    if expected.signal:  # Keras' `fit` hangs
        return None
    if found.signal:
        return Difference(f"ended by signal {found.signal}", found.output[-1500:])
    if found.error or expected.error:
        return _errors(expected, found)
    told = found.values.get("told", {})
    plan_used = told.get("plan", "Keras fit")
    level, reason = promises.numbers(case, plan_used=plan_used, resumed=resumed)
    compared = _Compared(
        level,
        lambda name: promises.allowed_difference(case, name, plan_used=plan_used),
        f"{level} {reason} [{plan_used}]",
    )
    return (
        compared.histories(expected.values["history"], found.values["history"])
        or _keeps_rows(case, level)
        and compared.rows(
            expected.values, found.values, is_free=promises.order_is_free(case, resumed=resumed)
        )
        or compared.arrays(case, "weights", expected.values, found.values)
        or compared.arrays(case, "optimizer", expected.values, found.values)
        or compared.arrays(case, "raw", expected.values, found.values)
        or compared.callbacks(
            case,
            expected.values,
            found.values,
            resumed=resumed or ": rolled back to step" in found.output,
        )
    )


def _keeps_rows(case: Case, level: str) -> bool:
    """Whether the model holds all rows that it has seen.

    Not where it goes back to its best epoch, if the numbers that say which it is may differ.
    """
    return level != promises.FREE or "early_stopping" not in case.callbacks


def _errors(expected: Ended, found: Ended) -> Difference | None:
    if expected.error and found.error:
        if expected.error[0] == found.error[0]:  # the rest of a message is where it was raised
            return None
        what = f"{expected.error[0]} becomes {found.error[0]}"
        return Difference(f"error: {what}", f"{expected.error[1]} | {found.error[1]}"[-1500:])
    if found.error:
        kind, message = found.error
        return Difference(f"raises {kind}: {gist(message)}", found.output[-2500:])
    if promises.may_train(expected.error[1]):
        return None
    return Difference(f"does not raise {expected.error[0]}", gist(expected.error[1]))


class _Compared:
    def __init__(self, level: str, rtol_of: Callable[[str], float], how: str) -> None:
        self._level, self._rtol_of, self._how = level, rtol_of, how

    def histories(self, expected: list[Any], found: list[Any]) -> Difference | None:
        if len(expected) != len(found):
            return self._told("count of histories", f"{len(found)} for {len(expected)}")
        for (epochs, logs), (found_epochs, found_logs) in zip(expected, found, strict=True):
            if list(epochs) != list(found_epochs):
                return self._told("History epochs", f"{found_epochs} for {epochs}")
            if list(logs) != list(found_logs):
                return self._told("History keys", f"{list(found_logs)} for {list(logs)}")
            for name, values in logs.items():
                bad = self._unlike(values, found_logs[name], name)
                if bad:
                    which = "val" if name.startswith("val") else "train"
                    return self._told(f"History values ({which})", f"{name}: {bad}")
        return None

    def rows(self, expected: dict, found: dict, *, is_free: bool) -> Difference | None:
        """Compares which rows the model saw in training, in their order."""
        log, found_log = (_rows_seen(values["weights"]) for values in (expected, found))
        if log is None or found_log is None:
            return None
        if len(log) != len(found_log):
            detail = f"{len(found_log)} for {len(log)} rows"
            return self._told("number of rows trained on", detail)
        if not is_free and not np.array_equal(log, found_log):
            first = int(np.argmax(log != found_log))
            detail = f"from step {first // BATCH_SIZE + 1} on: {found_log[first:][:6]} "
            return self._told("order of rows", f"{detail} for {log[first:][:6]}")
        return None

    def arrays(self, case: Case, group: str, expected: dict, found: dict) -> Difference | None:
        one, other = expected[group], found[group]
        if group == "optimizer" and promises.may_have_more_slots(case):
            return None
        if len(one) != len(other):
            detail = f"{len(other)} for {len(one)}: {sorted(set(other) ^ set(one))}"
            return self._told(f"count of {group} variables", detail)
        for name, name_found in zip(one, other, strict=True):
            if name.endswith(("seen/rows", "seen/count", "rows:0", "count:0")):
                continue
            if not promises.variable_is_comparable(case, name):
                continue
            bad = self._unlike(one[name], other[name_found], name)
            if bad:
                kind = re.sub(r"\d+", "#", name.rpartition("/")[2].rpartition(":")[2])
                what = f"raw state {kind.rpartition('.')[2]}" if group == "raw" else group
                return self._told(f"values of {what}", f"{name}: {bad}")
        return None

    def callbacks(self, case: Case, expected: dict, found: dict, *, resumed: bool) -> Any:
        for name in ("number", "_hidden", "best", "items", "table", "array"):
            one, other = expected["counters"].get(name), found["counters"].get(name)
            is_number = isinstance(one, (float, np.ndarray))
            bad = self._unlike(one, other) if is_number and other is not None else one != other
            if bad:
                kind = type(one).__name__
                return self._told(f"callback attribute ({kind})", f"{name}: {other} for {one}")
        seen, found_seen = expected["seen"], found["seen"]
        if resumed:
            seen, found_seen = promises.seen_when_resumed(case, seen, found_seen)
        bad = self._unlike_nested(seen, found_seen, "seen")
        if bad:
            return self._told(f"callback events ({bad[0]})", bad[1])
        names, found_names = expected["files"], found["files"]
        if set(names) != set(found_names):
            return self._told("files", f"{sorted(found_names)} for {sorted(names)}")
        for name in names:
            if not promises.file_is_comparable(case, name, resumed=resumed):
                continue
            if self._level == promises.EXACT and names[name] != found_names[name]:
                detail = f"{found_names[name]!r} for {names[name]!r}"
                return self._told(f"file {name}", detail)
        return None

    def _unlike_nested(self, one: Any, other: Any, place: str) -> tuple[str, str] | None:
        if isinstance(one, dict) and isinstance(other, dict):
            if list(one) != list(other):
                return place, f"{list(other)} for {list(one)}"
            pairs = [(one[key], other[key], str(key)) for key in one]
        elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
            if len(one) != len(other):
                return f"{place}: count", f"{_names(other)} for {_names(one)}"
            if one and isinstance(one[0], str) and one[0] == other[0]:
                place = one[0]
            pairs = [(a, b, place) for a, b in zip(one, other, strict=True)]
        elif isinstance(one, float) and isinstance(other, float):
            bad = self._unlike(one, other)
            return (place, f"{place}: {bad}") if bad else None
        else:
            return None if one == other else (place, f"{place}: {other} for {one}")
        return next(filter(None, (self._unlike_nested(*pair) for pair in pairs)), None)

    def _unlike(self, one: Any, other: Any, name: str = "") -> str:
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return f"shape {other.shape} for {one.shape}"
        if one.dtype.kind not in "fiub":
            return "" if one.tolist() == other.tolist() else f"{other} for {one}"
        if np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            return ""
        finite = np.array_equal(np.isfinite(one), np.isfinite(other))
        if self._level == promises.FREE and finite:
            return ""
        gap = float(np.max(np.abs(one.astype("float64") - other), initial=0.0))
        if self._level == promises.NEAR and finite:
            scale = float(np.max(np.abs(one), initial=0.0))
            if gap <= self._rtol_of(name) * max(scale, 1e-2):
                return ""
        return f"{np.ravel(other)[:3]} for {np.ravel(one)[:3]}, {gap:.1e} apart"

    def _told(self, what: str, detail: str) -> Difference:
        return Difference(what, f"{detail} ({self._how})")


def _names(events: Any) -> list[Any]:
    return [event[0] if isinstance(event, (list, tuple)) else event for event in events]


def _rows_seen(weights: dict[str, np.ndarray]) -> np.ndarray | None:
    log = next((v for v in weights.values() if v.shape == (1024,) and v.dtype.kind == "i"), None)
    count = next((v for v in weights.values() if v.shape == () and v.dtype == np.int32), None)
    return None if log is None or count is None else log[: int(count)]
