"""The states of the process's random generators that are not variables."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfx_perf.tf_internals import random_state


def states() -> dict[str, Any]:
    """Returns the states of Python's, NumPy's and, if seeded, TensorFlow's generators, for JSON."""
    state: Any = np.random.get_state()
    name, keys, *rest = state
    of_tensorflow = random_state.operation_seeds()
    return {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), *rest],
        "tensorflow": of_tensorflow and of_tensorflow.getstate(),
    }


def restore(saved: dict[str, Any]) -> None:
    """Restores the generators to the result of `states`."""
    _restore_python_and_numpy(saved)
    of_tensorflow = random_state.operation_seeds()
    if of_tensorflow is not None and saved["tensorflow"] is not None:
        random_state.restore(of_tensorflow, _state(saved["tensorflow"]))


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Restores the generators after the context, as if nothing had been drawn in it."""
    before = states()
    with random_state.other_operation_seeds():
        try:
            yield
        finally:
            _restore_python_and_numpy(before)


def _restore_python_and_numpy(saved: dict[str, Any]) -> None:
    random.setstate(_state(saved["python"]))
    name, keys, *rest = saved["numpy"]
    if not 0 <= rest[0] <= len(keys):  # NumPy would read out of bounds
        raise ValueError("the place of NumPy's generator is outside of its numbers")
    np.random.set_state((name, np.array(keys, np.uint32), *rest))


def _state(saved: Any) -> tuple[Any, ...]:
    """Returns the argument of `random.Random.setstate`, with tuples, which JSON lacks."""
    version, internal, gauss = saved
    return version, tuple(internal), gauss
