"""Process: one that was started here, and what is asked of it while it runs."""

import abc
import subprocess
from typing import Any

from tfx_perf.components.processes import child_server


class Process(abc.ABC):
    """A process that has been started."""

    def __init__(self, process: "subprocess.Popen[Any] | child_server.ServedChild") -> None:
        """Is made by what has started it.

        Args:
            process: with an exit code as `subprocess` has it.
        """
        self._process = process

    def poll(self) -> int | None:
        """Returns the exit code, negative if a signal ended it; None while it runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; returns the exit code.

        Args:
            timeout: seconds; None: for ever.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        return self._process.wait(timeout)

    @abc.abstractmethod
    def terminate(self) -> None:
        """Sends it SIGTERM, which it notices even if it is stopped, unless it has ended."""

    @abc.abstractmethod
    def end(self) -> None:
        """Ends it, and all that it has started, the hard way."""
