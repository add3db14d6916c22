"""Termination: delays SIGTERM until the state of the training is on disk."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Termination:
    """A context in which SIGTERM is noted (`requested`) instead of ending the process.

    Only the main thread can do that; in other threads SIGTERM keeps its effect. If it `interrupts`,
    SIGTERM also raises a KeyboardInterrupt.

    Example:
        >>> with Termination() as termination:
        ...     work()
        ...     if termination.requested:
        ...         save()
        ...         termination.go_on()
    """

    def __init__(self, *, interrupts: bool = False) -> None:
        self._interrupts = interrupts
        self.requested = False
        self._previous: Any = None
        self._is_installed = False

    def __enter__(self) -> "Termination":
        """Takes over SIGTERM."""
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._note)
            self._is_installed = True
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the handler of SIGTERM; a signal that has arrived meanwhile takes effect."""
        if not self._is_installed:
            return
        # None: the handler was not installed from Python and cannot be restored.
        signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)
        self._is_installed = False
        if self.requested:
            self.requested = False
            signal.raise_signal(signal.SIGTERM)

    def go_on(self) -> None:
        """Lets a SIGTERM that has arrived take effect: usually, it ends the process."""
        self.__exit__(None, None, None)
        self.__enter__()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if self._interrupts:
            signal.default_int_handler(number, frame)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """A context in which SIGTERM ends a worker as `sys.exit` does; TensorFlow would run on."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) not in (None, signal.SIG_DFL):
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
