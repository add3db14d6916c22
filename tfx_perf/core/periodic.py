"""Something done again and again beside something else."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def calling(work: Callable[[], object], *, seconds: float) -> Iterator[None]:
    """Has a thread call `work` every `seconds` while the context lasts; it has returned afterwards.

    What it raises ends the calls, not the context.
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
