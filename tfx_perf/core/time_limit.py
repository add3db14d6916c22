"""Ends a process that takes too long."""

import contextlib
import faulthandler
import signal
import time
from collections.abc import Iterator


@contextlib.contextmanager
def ended_after(seconds: float, *, log_path: str) -> Iterator[None]:
    """Ends this process if the context takes longer, wherever it is, with its stacks in the log.

    The user's timers continue: one of `setitimer` afterwards, one of `faulthandler` all the time.
    """
    before = None
    began = time.monotonic()
    with contextlib.suppress(ValueError):  # not the main thread: then the user's action stays
        # With the default action the kernel ends the process; no Python code is needed for it.
        before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with open(log_path, "ab", buffering=0) as log:  # the user may have replaced sys.stderr
        # Not `dump_traceback_later`, because a process has only one.
        faulthandler.register(signal.SIGALRM, file=log, chain=True)
        left_seconds, interval_seconds = signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            faulthandler.unregister(signal.SIGALRM)
            if before is not None:
                signal.signal(signal.SIGALRM, before)
            if left_seconds:
                left_seconds = max(1e-3, left_seconds - (time.monotonic() - began))
                signal.setitimer(signal.ITIMER_REAL, left_seconds, interval_seconds)
