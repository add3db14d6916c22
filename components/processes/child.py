"""Runs a function in a process of its own, which may crash, hang or be killed.

The child is a fresh interpreter (a fork would inherit TensorFlow's threads in a broken state),
or a fork of one that has done nothing but imports (`child_server`), with the parent's import path
and Keras line, in a process group of its own. It and what it has started end with its parent,
however that ends (`child_guard`).
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from tfx_perf import console, errors, formatting
from tfx_perf.components.processes import child_guard, child_server, child_side
from tfx_perf.components.processes.process import Process
from tfx_perf.hardware import core_shares
from tfx_perf.training.recovery.termination import Termination

_POLL_SECONDS = 0.2
_SERVER = child_server.ChildServer()


class Child(Process):
    """One that was started; see `started`."""

    def __init__(
        self, process: "subprocess.Popen | child_server.ServedChild", job: "_Job"
    ) -> None:
        """Is made by `started`."""
        super().__init__(process)
        self._job = job

    def send_signal(self, number: int) -> None:
        """Sends a signal to its guard, which passes on SIGTERM, unless it has ended."""
        self._process.send_signal(number)

    @override
    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    @override
    def end(self) -> None:
        self.send_signal(child_guard.END)
        self.send_signal(signal.SIGCONT)  # where it was stopped it would not see the other
        self.wait()

    def result(self, *, timeout_seconds: float | None) -> Any:
        """Waits for the end of the child; returns what its function returned, a JSON value.

        Args:
            timeout_seconds: see `run_in_child`.

        Raises:
            UserError: see `run_in_child`; likewise the others.
        """
        job = self._job
        try:
            if job.stands_for_its_parent:
                code = _wait_as_its_shell(self._process)
            else:
                code = self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            seconds = formatting.format_seconds(error.timeout)
            raise errors.TimedOutError(
                job.target, f"did not end within {seconds}", log=job.log
            ) from error
        if not job.response.exists():
            is_told = code == -signal.SIGTERM
            kind = errors.TerminatedError if is_told else errors.ProcessEndedError
            raise kind(job.target, _ending(code), log=job.log)
        outcome = json.loads(job.response.read_text())
        if "user_error" in outcome:
            raise errors.UserError(outcome["user_error"])
        if "error" in outcome:
            raise errors.ChildError(
                job.target,
                f"raised {outcome['error']}",
                log=job.log,
                may_pass=outcome["may_pass"],
            )
        return outcome["result"]


@dataclasses.dataclass(frozen=True)
class _Job:
    """What a child was asked to do.

    Attributes:
        target: see `run_in_child`.
        folder: for the request and the response.
        log_path: see `run_in_child`.
    """

    target: str
    folder: pathlib.Path
    log_path: str | os.PathLike[str] | None

    @property
    def request(self) -> pathlib.Path:
        return self.folder / "request"

    @property
    def response(self) -> pathlib.Path:
        return self.folder / "response"

    @property
    def stands_for_its_parent(self) -> bool:
        return self.log_path is None

    @property
    def log(self) -> str:
        """The path in errors."""
        return "" if self.log_path is None else str(self.log_path)


def run_in_child(
    target: str,
    arguments: Mapping[str, Any],
    *,
    timeout_seconds: float | None,
    log_path: str | os.PathLike[str] | None,
    environment: Mapping[str, str] | None = None,
    from_server: bool = False,
) -> Any:
    """Calls a function in a child process and returns its result, a JSON value.

    Args:
        target: `package.module:function`; importable.
        arguments: keyword arguments of the function, JSON values.
        timeout_seconds: after this the child and all it started are killed; None: never.
        log_path: file that the child's output is added to; its folder must exist. None: it goes
            where the parent's goes. Such a child stands for its parent: it may take any
            time; SIGTERM and Ctrl-C reach it as SIGTERM, and take effect here when it has ended.
        environment: variables to set beside the parent's.
        from_server: fork the child from a server that keeps the target's imports for the next
            one, where that is safe. For modules that do nothing when they are imported, and
            variables that TensorFlow reads only when it begins to run.

    Raises:
        UserError: the function raised one; the message is the same.
        ChildError: the function raised something else. One line with the cause and the path of
            the log, here and below.
        TimedOutError: it took longer than `timeout_seconds`.
        ProcessEndedError: the child was killed, crashed or ended itself; a TerminatedError if that
            was by SIGTERM.
    """
    with started(
        target, arguments, log_path=log_path, environment=environment, from_server=from_server
    ) as child:
        return child.result(timeout_seconds=timeout_seconds)


@contextlib.contextmanager
def started(
    target: str,
    arguments: Mapping[str, Any],
    *,
    log_path: str | os.PathLike[str] | None,
    environment: Mapping[str, str] | None = None,
    from_server: bool = False,
    cpus: core_shares.Cpus | None = None,
) -> Iterator[Child]:
    """Starts a child, which runs while the context lasts; it and all it started end with that.

    Args:
        target: see `run_in_child`, as for the other arguments.
        arguments: likewise.
        log_path: likewise.
        environment: likewise.
        from_server: likewise.
        cpus: that it is bound to; None: those of this process.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        open(log_path, "ab") if log_path is not None else contextlib.nullcontext() as log,
    ):
        job = _Job(target, pathlib.Path(folder), log_path)
        asked = {
            "target": target,
            "arguments": dict(arguments),
            "is_expendable": not job.stands_for_its_parent,
            "generators": _generators() if job.stands_for_its_parent else None,
        }
        job.request.write_text(json.dumps(asked))
        streams = (log.fileno(), log.fileno()) if log is not None else _standard_streams()
        process: subprocess.Popen | child_server.ServedChild | None = None
        if from_server:
            order = {
                "target": target,
                "request": str(job.request),
                "response": str(job.response),
                "environment": dict(environment or {}),
                "stands_for_its_parent": job.stands_for_its_parent,
                "cpus": None if cpus is None else sorted(cpus),
            }
            process = _SERVER.start(order, environment=_environment(), streams=streams)
        if process is None:
            with core_shares.bound_to(cpus):
                process = _interpreter(
                    job, streams=streams, environment={**_environment(), **(environment or {})}
                )
        child = Child(process, job)
        try:
            yield child
        finally:  # also on Ctrl-C, which does not reach another process group
            child.end()


def import_early(modules: Sequence[str]) -> None:
    """Has the server of `from_server` import modules in the background, where there may be one.

    Args:
        modules: those that targets are in.
    """
    _SERVER.import_early(modules, environment=_environment())


def release_server() -> None:
    """Gives back the memory of the server that children were forked from, if there is one."""
    _SERVER.release()


def _standard_streams() -> tuple[int, int]:
    """Returns output and error; the null device for one that is closed."""
    for stream in (1, 2):
        try:
            os.fstat(stream)
        except OSError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream)
    return 1, 2


def _generators() -> dict[str, Any] | None:
    """Returns the states of this process's random generators; None if it has loaded none."""
    if "tensorflow" not in sys.modules:
        return None
    from tfx_perf.training.recovery import generators

    return generators.states()


def _interpreter(
    job: _Job, *, streams: tuple[int, int], environment: Mapping[str, str]
) -> subprocess.Popen:
    """Starts a fresh interpreter."""
    return subprocess.Popen(
        [
            sys.executable, "-m", child_side.__name__,
            str(job.request), str(job.response), str(os.getpid()),
        ],
        stdin=subprocess.DEVNULL,
        stdout=streams[0],
        stderr=streams[1],
        env=environment,
        start_new_session=True,
    )  # fmt: skip


def _wait_as_its_shell(process: "subprocess.Popen | child_server.ServedChild") -> int:
    """Waits for the end of a process that stands for this one; a second Ctrl-C ends it at once."""
    try:
        with Termination() as termination:
            is_told = False
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_SECONDS)
                if termination.requested and not is_told:
                    process.send_signal(signal.SIGTERM)
                    is_told = True
    except KeyboardInterrupt:
        console.set_status("ending what runs; Ctrl-C again does not wait for it")
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise


def _environment() -> dict[str, str]:
    """Returns the parent's environment, so changed that the child imports what it would."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        # `tf.keras` is settled when it is first used, and tensorflow_transform may set the
        # variable after that; a child that reads it could get the other Keras line.
        legacy = tensorflow.keras.Model.__module__.startswith("tf_keras")
        environment["TF_USE_LEGACY_KERAS"] = "1" if legacy else "0"
    return environment


def _ending(return_code: int) -> str:
    if return_code == -signal.SIGKILL:
        return "was killed (SIGKILL), by hand or because memory ran out"
    if return_code == -signal.SIGALRM:
        return "ran out of time (SIGALRM)"
    if return_code == -signal.SIGTERM:
        return "was told to end (SIGTERM)"
    if return_code < 0:
        return f"crashed ({signal.Signals(-return_code).name})"
    return f"ended the process with exit code {return_code}"
