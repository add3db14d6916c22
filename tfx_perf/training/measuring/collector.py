"""Python's garbage collector during a training."""

import contextlib
import gc
import time
from collections.abc import Iterator


class Pauses:
    """How long the collector stopped Python, in `seconds` over all pauses."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Times a collection, as one of `gc.callbacks`."""
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._began


@contextlib.contextmanager
def spared() -> Iterator[Pauses]:
    """Keeps the collector from visiting existing objects, and measures its pauses.

    TensorFlow, Keras and a traced model are some million objects. None of them becomes garbage
    in a training, but every full collection visits each of them. Python unfreezes all objects or
    none, so none are frozen if some are: by users, or in a fork, whose imports stay frozen, since
    a collection that visits them copies their memory.
    """
    pauses = Pauses()
    freezes = not gc.get_freeze_count()
    if freezes:
        gc.freeze()
    gc.callbacks.append(pauses.on_collection)
    try:
        yield pauses
    finally:
        with contextlib.suppress(ValueError):  # users have removed it
            gc.callbacks.remove(pauses.on_collection)
        if freezes:
            gc.unfreeze()
