"""Random numbers that depend on a row's place in the batch, not on its replica or its slice.

Each replica draws from the same seed what one device draws for the whole batch, and takes its own
rows, so that any number of replicas drops the same units. JAX calls such numbers
sharding-invariant.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf


class _Here(threading.local):
    """State of the replica that a thread traces."""

    find: Callable[[], "Rows | None"] | None = None  # see `of_rows`
    drawn: list[Any] | None = None  # generators asked for a seed; None: not recorded


_HERE = _Here()
_LASTING: list[bool] = []  # one entry per open context


class Rows(NamedTuple):
    """The rows of a replica, `first` and `count`, among those of all replicas."""

    first: Any
    count: Any
    of_all: Any


@contextlib.contextmanager
def of_rows(find: Callable[[], Rows | None]) -> Iterator[None]:
    """Makes each draw ask `find` which rows are computed; None means unknown."""
    before, _HERE.find = _HERE.find, find
    try:
        yield
    finally:
        _HERE.find = before


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """Marks that one of the Keras packages draws by rows inside the context."""
    _LASTING.append(True)
    try:
        yield
    finally:
        _LASTING.pop()


def are_lasting() -> bool:
    """Whether random numbers are drawn by rows inside `of_rows`."""
    return bool(_LASTING)


@contextlib.contextmanager
def skippable() -> Iterator[Callable[[], None]]:
    """Yields a function that draws the same number of seeds as the code in the context.

    So a replica that skips that code draws the same numbers afterward.
    """
    before, drawn = _HERE.drawn, list[Any]()
    _HERE.drawn = drawn

    def skip() -> None:
        _HERE.drawn = None
        for generator in drawn:
            generator.next()

    try:
        yield skip
    finally:
        _HERE.drawn = before


def noted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a seed generator's `next` so that each call is recorded."""

    def next_seed(generator: Any, *arguments: Any, **named: Any) -> Any:
        if _HERE.drawn is not None:
            _HERE.drawn.append(generator)
        return original(generator, *arguments, **named)

    return next_seed


def drawing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that draws numbers, so that it draws by rows inside `of_rows`."""

    def draw(shape: Any, *arguments: Any, **named: Any) -> Any:
        lengths = _lengths_of(shape)
        rows = _rows_of(lengths)
        if rows is None:
            return original(shape, *arguments, **named)
        whole = original((rows.of_all, *lengths[1:]), *arguments, **named)
        return whole[rows.first : rows.first + rows.count]

    return draw


def dropping(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that drops units, so that it draws by rows inside `of_rows`."""

    def dropout(inputs: Any, rate: Any, noise_shape: Any = None, **named: Any) -> Any:
        lengths = tf.shape(inputs)
        known = list(inputs.shape) if noise_shape is None else _lengths_of(noise_shape)
        shape = [lengths[axis] if each is None else each for axis, each in enumerate(known)]
        rows = _rows_of(shape)
        if rows is None:
            return original(inputs, rate, noise_shape=noise_shape, **named)
        ones = tf.ones((rows.of_all, *shape[1:]), inputs.dtype)
        factors = original(ones, rate, **named)
        return inputs * factors[rows.first : rows.first + rows.count]

    return dropout


def _lengths_of(shape: Any) -> list[Any]:
    if not tf.is_tensor(shape):
        return list(shape)
    known = tf.get_static_value(shape, partial=True)
    return [
        shape[axis] if known is None or known[axis] is None else int(known[axis])
        for axis in range(shape.shape[0])
    ]


def _rows_of(shape: list[Any]) -> Rows | None:
    """Returns the replica's rows if a shape has entries for each row of the batch, else None."""
    rows = _HERE.find() if _HERE.find is not None and shape else None
    if rows is None:
        return None
    length = shape[0]
    is_known = isinstance(length, int)
    if is_known and not (isinstance(rows.count, int) and length % rows.count == 0):
        return None
    entries = length // (rows.count if is_known else tf.maximum(rows.count, 1))
    return Rows(rows.first * entries, length, rows.of_all * entries)
