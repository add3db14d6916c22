"""Workers that do not come up are named, and not waited for without end."""

import contextlib
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence

from tfx_perf.isolate import guard

_CONNECT_SECONDS = 5.0


@contextlib.contextmanager
def awaited(
    hosts: Sequence[str], *, seconds: float, report: Callable[[str], None]
) -> Iterator[None]:
    """Ends this process after `seconds` in the context, once `report` has named who is missing.

    TensorFlow waits for the other workers (`host:port`) in a call in which no Python code can run.
    So a forked process watches the clock and calls `report`; there should be no threads yet.
    """
    watch = multiprocessing.get_context("fork").Process(
        target=_watch, args=(hosts, seconds, report, os.getpid()), daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        watch.kill()
        watch.join()


def _watch(
    hosts: Sequence[str], seconds: float, report: Callable[[str], None], waiting: int
) -> None:
    guard.end_with(waiting)
    time.sleep(seconds)
    missing = [index for index, host in enumerate(hosts) if not _answers(host)]
    who = " and ".join(f"worker {index} at {hosts[index]}" for index in missing)
    report(
        f"Expected all {len(hosts)} workers to be up within {seconds:.0f} s. Received: no answer "
        f"from {who or 'one of them in time'}. Look at its log, or set "
        "distribution.start_timeout_seconds to a longer time."
    )
    os.kill(waiting, signal.SIGKILL)


def _answers(host: str) -> bool:
    name, _, port = host.rpartition(":")
    try:
        with socket.create_connection((name, int(port)), _CONNECT_SECONDS):
            return True
    except OSError:
        return False
