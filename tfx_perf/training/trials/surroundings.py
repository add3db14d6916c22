"""What a training step may change outside of its model, kept while trials run in the process."""

import contextlib
import gc
import logging
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from tfx_perf.training.keras_api.variables import components, with_components
from tfx_perf.training.recovery import generators

# Copies of more than that are not made of variables that most steps leave alone.
_MOST_BYTES = 2**28

_LOGGER = logging.getLogger(__name__)


def variables(*, beside: Iterable[tf.Variable]) -> list[tf.Variable] | None:
    """Returns the variables of this process, wherever the user's code holds them.

    A step may count in one, anneal by one, or draw from a `tf.random.Generator`; which, is not
    known before it has run. Of one that is kept on several devices the parts are returned: to read
    it would add them up, with those of all workers, of which another may not hold it any more.

    Args:
        beside: those to leave out, of the model.

    Returns:
        None if their values would take too much memory.
    """
    known = {id(part) for variable in beside for part in with_components(variable)}
    is_variable: dict[type, bool] = {}
    found, size_bytes = [], 0
    for each in gc.get_objects():
        kind = type(each)
        if kind not in is_variable:
            is_variable[kind] = issubclass(kind, tf.Variable)
        if not is_variable[kind] or id(each) in known:
            continue
        with contextlib.suppress(Exception):  # of a graph, or deleted
            if components(each):
                continue
            size_bytes += each.shape.num_elements() * max(1, each.dtype.size)
            found.append(each)
    return found if size_bytes <= _MOST_BYTES else None


@contextlib.contextmanager
def kept(
    outside: Iterable[tf.Variable], *, used: Callable[[], Iterable[tf.Variable] | None]
) -> Iterator[None]:
    """Puts variables, and the process's random generators, back to where they were.

    Args:
        outside: variables that `variables` found.
        used: returns those that the steps read or write; None if that is not known. Others are left
            alone: another thread may train them.
    """
    values: list[tuple[tf.Variable, np.ndarray]] = []
    for variable in outside:
        with contextlib.suppress(Exception):  # without a value, or on a device that is gone
            values.append((variable, variable.numpy()))
    with generators.kept():
        try:
            yield
        finally:
            known = used()
            names = known and {id(part) for each in known for part in with_components(each)}
            for variable, value in values:
                if names is not None and id(variable) not in names:
                    continue
                try:
                    variable.assign(value)
                except Exception as error:
                    _LOGGER.warning("Trials may have changed %s: %s", variable.name, error)
