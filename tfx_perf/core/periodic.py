"""Calls a function again and again in the background."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def calling(work: Callable[[], object], *, seconds: float) -> Iterator[None]:
    """Calls `work` every `seconds` in a thread during the context; waits for the last call.

    An exception from `work` ends the calls, not the context.
    """
    ended = threading.Event()

    def call() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
