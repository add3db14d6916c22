"""Something done again and again beside something else."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def calling(
    work: Callable[[], object], *, seconds: float, longest_seconds: float | None = None
) -> Iterator[None]:
    """Has a thread call `work` at intervals while the context lasts; it has returned afterwards.

    Args:
        work: what it raises ends the calls, not the context.
        seconds: before the first call, and between two.
        longest_seconds: to which the time between two calls grows: after an hour nobody needs
            twice as many in the next. None: it stays as it is.
    """
    ended, began = threading.Event(), time.monotonic()

    def call() -> None:
        wait = seconds
        while not ended.wait(wait):
            work()
            wait = max(seconds, min(time.monotonic() - began, longest_seconds or 0.0))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
