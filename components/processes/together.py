"""One attempt of processes on this machine to train together, from their start to their end."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence

from tfx_perf import workers
from tfx_perf.components.processes import launching, restarting, watching
from tfx_perf.components.processes.restarting import Cause
from tfx_perf.components.processes.worker_failure import WorkerFailure
from tfx_perf.components.processes.worker_tasks import Task


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What became of them.

    Attributes:
        exit_codes: of all, as `subprocess` has them.
        cause: why they have failed; None if they have not, or were to end.
        exit_code: of the one that failed; 0 if none did.
        log: of that one; None if none did.
    """

    exit_codes: Sequence[int | None]
    cause: Cause | None = None
    exit_code: int = 0
    log: pathlib.Path | None = None


def train(
    tasks: Sequence[Task],
    *,
    start: launching.Start,
    log_folder: pathlib.Path,
    failures: Callable[[], Mapping[int, WorkerFailure]],
    restarts: int,
    heartbeat_timeout_seconds: float,
    is_over: Callable[[], bool],
    say: launching.Say,
) -> Attempt:
    """Runs processes until they have trained, or one has failed without which the others cannot.

    Args:
        tasks: what they do.
        start: starts a process, whose log is added to the file `workers.log_file` names.
        log_folder: with these files.
        failures: returns what they have reported.
        restarts: see `watching.first_failure`.
        heartbeat_timeout_seconds: likewise.
        is_over: likewise.
        say: see `launching.started`.
    """
    with launching.started(tasks, start=start, say=say) as launched:
        first = watching.first_failure(
            launched,
            restarts=restarts,
            heartbeat_timeout_seconds=heartbeat_timeout_seconds,
            is_over=is_over,
            say=say,
        )
        # Before the others are ended: what they say then may follow from that.
        endings, codes, reported = launched.endings, launched.codes, failures()
    if first is None:
        return Attempt(launched.codes)
    names = {index: task.name for index, task in enumerate(tasks)}
    ended_by = {index: codes[index] or 0 for index in endings}
    cause = restarting.cause_of(
        # Who has lost another one may say so before that one does, but one that is killed never.
        reported if min(ended_by.values(), default=0) < 0 else failures(),
        endings,
        exited=[index for index, code in ended_by.items() if code > 0],
        names=names,
    )
    blamed = first if cause.worker is None else cause.worker
    ended = [names[index] for index, code in enumerate(codes) if code == 0]
    if ended and cause.may_pass:
        before = f"before that {', '.join(ended)} had ended, with exit code 0"
        cause = dataclasses.replace(cause, message=f"{cause.message}; {before}")
    return Attempt(
        launched.codes,
        cause,
        exit_code=codes[blamed] or codes[first] or 0,
        log=log_folder / workers.log_file(names[blamed]),
    )
