"""Measures two trainings in turns on this host, each in a process of its own."""

import contextlib
import logging
import pathlib
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import IO

from tfx_perf import errors, statistics
from tfx_perf.components import child
from tfx_perf.components.optimized_trainer import job as jobs
from tfx_perf.components.perf_evaluator import turns_job
from tfx_perf.gate.remeasured import Remeasured
from tfx_perf.gate.run import Run

_TARGET = f"{turns_job.__name__}:{turns_job.train_in_turns.__name__}"
# An interval of the ratio needs some blocks, and more than these hardly narrow it.
_MIN_ROUNDS, _MAX_ROUNDS = 8, 60
_ENDING_SECONDS = 30.0

_LOGGER = logging.getLogger(__name__)


def measure(
    candidate: Run, baseline: Sequence[Run], *, seconds: float, log_folder: pathlib.Path
) -> Remeasured:
    """Trains the candidate and the last blessed run that can be run again, block by block.

    What makes one run slower than another on a shared host (its clock, its neighbours) then
    strikes both, and cancels in the ratio of their step times.

    Args:
        candidate: the run that is judged.
        baseline: comparable blessed runs, oldest first.
        seconds: how long it may take, with imports and compilation.
        log_folder: where the output of the two processes goes; made if it is not there.

    Returns:
        The ratio, or why there is none.
    """
    own = _job_of(candidate)
    jobs_before = ((run.run_id, _job_of(run)) for run in reversed(baseline))
    against, other = next((found for found in jobs_before if found[1]), (None, None))
    if own is None or other is None:
        whose = "this run" if own is None else "any blessed run"
        return Remeasured(reason=f"what it takes to train {whose} again is gone or has changed")
    _LOGGER.info("Training this run and %s in turns, for at most %.0f s.", against, seconds)
    log_folder.mkdir(parents=True, exist_ok=True)
    paths = {"in-turns-candidate": own, "in-turns-baseline": other}
    try:
        blocks = _blocks(paths, deadline=time.monotonic() + seconds, log_folder=log_folder)
    except (errors.MeasurementError, errors.UserError, OSError) as error:
        # Whatever fails here changes nothing; the run has its answer all the same.
        return Remeasured(reason=str(error).rstrip("."))
    return Remeasured(against=against, ratio=statistics.ratio_interval(*blocks))


def _job_of(run: Run) -> pathlib.Path | None:
    """Returns the file to run a training again with, None if that is no longer possible."""
    path = pathlib.Path(run.source or "", jobs.FILE_NAME)
    if not run.source or not path.exists():
        return None
    try:
        return path if jobs.TrainingJob.read(path).is_unchanged else None
    except errors.UserError:  # of another version, or its code is not there
        return None


def _blocks(
    paths: Mapping[str, pathlib.Path], *, deadline: float, log_folder: pathlib.Path
) -> list[list[float]]:
    """Returns seconds per step of each training, block by block.

    Raises:
        MeasurementError: one of them failed, or the time was too short.
        UserError: one of them cannot be run.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        futures.ThreadPoolExecutor(max_workers=len(paths)) as pool,
        # The trainings end when these are closed.
        socket.socket(socket.AF_UNIX) as server,
        contextlib.ExitStack() as connections,
    ):
        address = str(pathlib.Path(folder, "socket"))
        server.bind(address)
        server.listen()
        running = [
            pool.submit(
                child.run_in_child,
                _TARGET,
                {"job": str(path), "address": address, "name": name},
                timeout_seconds=_left(deadline) + _ENDING_SECONDS,
                log_path=log_folder / f"{name}.log",
            )
            for name, path in paths.items()
        ]
        streams = {}
        for _ in paths:
            stream = connections.enter_context(_accepted(server, running, deadline))
            streams[_line(stream, running)] = stream
        return _in_turns([streams[name] for name in paths], running, deadline)


def _accepted(
    server: socket.socket, running: Sequence[futures.Future], deadline: float
) -> IO[str]:
    server.settimeout(0.5)
    while time.monotonic() < deadline:
        _raise_errors(running)
        with contextlib.suppress(TimeoutError):
            connection, _ = server.accept()
            connection.settimeout(_left(deadline))
            with connection:  # what is left of it is the stream
                return connection.makefile("rw")
    raise _too_short()


def _in_turns(
    streams: Sequence[IO[str]], running: Sequence[futures.Future], deadline: float
) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in streams]
    for _ in range(_MAX_ROUNDS):
        if time.monotonic() > deadline:
            break
        for stream, seconds in zip(streams, found, strict=True):
            with contextlib.suppress(OSError):  # it has ended; reading says why
                stream.write(turns_job.GO)
                stream.flush()
            seconds.append(float(_line(stream, running)))
    if len(found[0]) < _MIN_ROUNDS:
        raise _too_short()
    return found


def _line(stream: IO[str], running: Sequence[futures.Future]) -> str:
    try:
        line = stream.readline()
    except TimeoutError as error:
        raise _too_short() from error
    except OSError:
        line = ""
    if not line:
        futures.wait(running, return_when=futures.FIRST_COMPLETED)
        _raise_errors(running)
        raise errors.MeasurementError("A training ended before it was told to.")
    return line.strip()


def _raise_errors(running: Sequence[futures.Future]) -> None:
    for training in running:
        if training.done():
            training.result()


def _left(deadline: float) -> float:
    return max(1.0, deadline - time.monotonic())


def _too_short() -> errors.MeasurementError:
    return errors.MeasurementError(
        "the time was too short to train in turns; raise gate.escalate_seconds"
    )
