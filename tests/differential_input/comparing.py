"""Compares what the user's code sees of a candidate with what it sees of TFXIO's dataset."""

import collections
from typing import Any

from tests.fuzzing.differences import Difference, gist

from .cases import Call
from .reading import Batch, Reading

# What these see of a shuffled dataset are not epochs, one after the other.
_NO_EPOCHS = ("skip", "shard", "repeat", "interleave", "flat_map")


def difference(
    call: Call, expected: Reading, found: Reading, epoch: collections.Counter[bytes]
) -> Difference | None:
    """Returns the first thing that TFXIO's dataset does otherwise; None if there is none.

    Args:
        call: of the factory.
        expected: of TFXIO's.
        found: of the candidate's.
        epoch: the examples of one epoch, each as often as it occurs.
    """
    if found.error or expected.error:
        return _errors(expected, found)
    if found.spec != expected.spec:
        return Difference("element spec", f"{found.spec} for {expected.spec}")
    if found.cardinality != expected.cardinality:
        return Difference("cardinality", f"{found.cardinality} for {expected.cardinality}")
    for name, batches in expected.streams.items():
        wrong = _stream(call, batches, found.streams[name], epoch)
        if wrong:
            return Difference(f"{wrong.signature} ({name})" if name != "first" else
                              wrong.signature, wrong.detail)  # fmt: skip
    return _repeats(call, expected, found)


def _errors(expected: Reading, found: Reading) -> Difference | None:
    if expected.error and found.error:
        if expected.error[0] == found.error[0]:
            return None
        what = f"{expected.error[0]} becomes {found.error[0]}"
        return Difference(f"error: {what}", f"{expected.error[1]} | {found.error[1]}"[:1500])
    if found.error:
        kind, message = found.error
        return Difference(f"raises {kind}: {gist(message)}", message[:2000])
    return Difference(f"does not raise {expected.error[0]}", expected.error[1][:1000])


def _stream(
    call: Call, expected: list[Batch], found: list[Batch], epoch: collections.Counter[bytes]
) -> Difference | None:
    sizes, found_sizes = ([len(batch.rows) for batch in batches] for batches in (expected, found))
    if sizes != found_sizes:
        detail = f"{sum(found_sizes)} for {sum(sizes)} rows: {found_sizes[:20]} for {sizes[:20]}"
        what = "batch sizes" if sum(sizes) == sum(found_sizes) else "number of rows"
        return Difference(what, detail)
    if call.is_ordered:
        return _in_order(expected, found)
    rows = [row for batch in found for row in batch.rows]
    if call.use not in _NO_EPOCHS:
        return _epochs(rows, epoch)
    all_expected = collections.Counter(row for batch in expected for row in batch.rows)
    if call.use in ("skip", "shard") or call.drop_final_batch or call.is_endless:
        strange = set(rows) - set(epoch)
        return Difference("rows of no epoch", f"{sorted(strange)[:3]}") if strange else None
    return _unlike(collections.Counter(rows), all_expected)


def _in_order(expected: list[Batch], found: list[Batch]) -> Difference | None:
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one == other:
            continue
        detail = f"batch {number}: {_first_unlike(other, one)}"
        if one.rows == other.rows:
            return Difference("form of a batch", detail)
        rows, other_rows = (
            collections.Counter(row for batch in batches for row in batch.rows)
            for batches in (expected, found)
        )
        return Difference("order of rows" if rows == other_rows else "values of rows", detail)
    return None


def _first_unlike(found: Batch, expected: Batch) -> str:
    for one, other in zip(found.rows, expected.rows, strict=False):
        if one != other:
            return f"{one[:300]} for {other[:300]}"
    for one, other in zip(found.parts, expected.parts, strict=False):
        if one != other:
            return f"{str(one)[:300]} for {str(other)[:300]}"
    return f"{len(found.parts)} for {len(expected.parts)} parts"


def _epochs(rows: list[bytes], epoch: collections.Counter[bytes]) -> Difference | None:
    """Compares every epoch, and the beginning of one at the end."""
    length = epoch.total()
    for begin in range(0, len(rows), max(1, length)):
        part = collections.Counter(rows[begin : begin + length])
        wrong = _unlike(part, epoch) if part.total() == length else _beyond(part, epoch)
        if wrong:
            return wrong
    return None


def _unlike(
    found: collections.Counter[bytes], expected: collections.Counter[bytes]
) -> Difference | None:
    if found == expected:
        return None
    more, less = found - expected, expected - found
    what = "rows of no epoch" if set(more) - set(expected) else "rows as often as in an epoch"
    return Difference(what, f"{list(more.items())[:2]} too many, {list(less.items())[:2]} missing")


def _beyond(
    found: collections.Counter[bytes], epoch: collections.Counter[bytes]
) -> Difference | None:
    more = found - epoch
    if not more:
        return None
    return Difference("rows as often as in an epoch", f"{list(more)[:2]} too many")


def _repeats(call: Call, expected: Reading, found: Reading) -> Difference | None:
    """Compares one stream with another, where TFXIO's are the same."""
    if not call.is_repeatable or len(expected.streams) < 2:
        return None

    def are_same(reading: Reading) -> bool:
        first, second = reading.streams.values()
        return first == second

    if not are_same(expected) or are_same(found):
        return None
    return Difference(f"order is another one the second time: {call.use}", _orders(found))


def _orders(found: Reading) -> str:
    orders: list[Any] = []
    seen: dict[bytes, int] = {}
    for batches in found.streams.values():
        rows = [row for batch in batches for row in batch.rows]
        orders.append([seen.setdefault(row, len(seen)) for row in rows][:60])
    return str(orders)
