"""Termination: SIGTERM waits until the state of the training is on disk."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Termination:
    """A context in which SIGTERM is noted (`requested`) instead of ending the process.

    Only the main thread can do that; in another one SIGTERM stays what it was.

    Example:
        >>> with Termination() as termination:
        ...     work()
        ...     if termination.requested:
        ...         save()
        ...         termination.go_on()
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None
        self._is_installed = False

    def __enter__(self) -> "Termination":
        """Takes SIGTERM over."""
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._note)
            self._is_installed = True
        return self

    def __exit__(self, *_: object) -> None:
        """Gives SIGTERM back; one that has come in the meantime takes effect."""
        if not self._is_installed:
            return
        # None: the handler was not installed from Python and cannot be put back.
        signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
        self._is_installed = False
        if self.requested:
            self.requested = False
            signal.raise_signal(signal.SIGTERM)

    def go_on(self) -> None:
        """Lets the SIGTERM that has come do what it would have done: mostly end the process."""
        self.__exit__(None, None, None)
        self.__enter__()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """A context in which SIGTERM ends a worker as `sys.exit` does; TensorFlow would go on."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) not in (None, signal.SIG_DFL):
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
