"""Child: a process that was started, and what is asked of it while it runs."""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

from tfx_perf.core import console, errors, formatting
from tfx_perf.isolate import guard
from tfx_perf.isolate.termination import Termination

_POLL_SECONDS = 0.2


class Child:
    """A process that was started; made by `Server.start`."""

    def __init__(
        self,
        pid: int,
        answers: IO[bytes],
        request: Mapping[str, Any],
        *,
        wake: Callable[[], None],
    ) -> None:
        """Takes a child whose exit code comes by `answers`; `wake` has a stopped server go on."""
        self._pid, self._answers, self._request, self._wake = pid, answers, request, wake
        self._code: int | None = None
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Closes what the answer came by: not before, since several threads may wait for it."""
        self._answers.close()

    def poll(self) -> int | None:
        """Returns the exit code, None while the child runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code, negative after a signal; TimeoutExpired if it runs longer."""
        if self._code is None and not select.select([self._answers], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self._pid), timeout or 0.0)
        with self._lock:
            if self._code is None:
                answer = self._answers.readline()
                # Without one the server has died, and the child with it.
                self._code = int(answer) if answer else -signal.SIGKILL
        return self._code

    def terminate(self) -> None:
        """Sends it SIGTERM, which it notices even if it is stopped, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)
                os.kill(self._pid, signal.SIGCONT)

    def end(self) -> None:
        """Kills it, and all that it has started."""
        if self.poll() is None:
            guard.end_all(self._pid, self._request["mark"])
            self._wake()
            self.wait()

    def result(self, *, timeout_seconds: float | None) -> Any:
        """Waits for the result, a JSON value; raises what `isolate.run` raises."""
        target, log = self._request["target"], self._request["log"]
        try:
            code = self.wait(timeout_seconds) if log else self._wait_as_its_shell()
        except subprocess.TimeoutExpired as error:
            seconds = formatting.format_seconds(error.timeout)
            raise errors.TimedOutError(target, f"did not end within {seconds}", log=log) from error
        response = pathlib.Path(self._request["response"])
        if not response.exists():
            is_told = code == -signal.SIGTERM
            kind = errors.TerminatedError if is_told else errors.ProcessEndedError
            raise kind(target, guard.in_words(code), log=log)
        outcome = json.loads(response.read_text())
        if "user_error" in outcome:
            raise errors.UserError(outcome["user_error"])
        if "error" in outcome:
            raised, may_pass = f"raised {outcome['error']}", outcome["may_pass"]
            raise errors.ChildError(target, raised, log=log, may_pass=may_pass)
        return outcome["result"]

    def _wait_as_its_shell(self) -> int:
        """Waits for a child that stands for this process; a second Ctrl-C ends it at once."""
        try:
            with Termination() as termination:
                is_told = False
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return self.wait(_POLL_SECONDS)
                    if termination.requested and not is_told:
                        self.terminate()
                        is_told = True
        except KeyboardInterrupt:
            console.set_status("ending what runs; Ctrl-C again does not wait for it")
            self.terminate()
            self.wait()
            raise
