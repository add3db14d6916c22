"""Measures a run and a blessed one again, in turns on this host."""

import logging
import pathlib
from collections.abc import Callable, Sequence

from tfx_perf.components import in_turns, training_job
from tfx_perf.core import errors, statistics, storage
from tfx_perf.gate.decision import Remeasured
from tfx_perf.gate.run import Run
from tfx_perf.training.trials import processes

_LOGGER = logging.getLogger(__name__)


def measure(
    candidate: Run,
    baseline: Sequence[Run],
    *,
    seconds: float,
    is_clear: Callable[[statistics.Interval], bool],
    log_folder: pathlib.Path,
) -> Remeasured:
    """Trains the candidate and the last blessed run that can be run again, block by block.

    On a busy host that goes on beyond the usual number of blocks, until more measurements would
    change no answer (`is_clear`). `seconds` includes imports and compilation.
    """
    own = _job_of(candidate)
    # Code is run from there, and a ledger may be shared with others.
    jobs_before = (
        (run.run_id, _job_of(run))
        for run in reversed(baseline)
        if _are_in_one_root(run, candidate)
    )
    against, other = next((found for found in jobs_before if found[1]), (None, None))
    if own is None or other is None:
        whose = "this run" if own is None else "any blessed run"
        return Remeasured(reason=f"what it takes to train {whose} again is gone or has changed")
    _LOGGER.info("Training this run and %s in turns, for at most %.0f s.", against, seconds)
    try:
        found = in_turns.train(
            {"in-turns-candidate": own, "in-turns-baseline": other},
            seconds=seconds,
            setting="gate.escalate_seconds",
            log_folder=log_folder,
            rounds=(in_turns.MAX_ROUNDS, None),
            decided=lambda blocks: is_clear(statistics.ratio_interval(*blocks)),
        )
    except processes.FAILURES as error:
        # Whatever fails here changes nothing; the run has its answer all the same.
        return Remeasured(reason=str(error).rstrip("."))
    ratio = statistics.ratio_interval(*(trained.step_seconds for trained in found))
    return Remeasured(against=against, ratio=ratio)


def _are_in_one_root(run: Run, other: Run) -> bool:
    """Whether two trainings lie in one pipeline root, `<root>/<node>/perf_metrics/<id>`."""
    if not run.source or not other.source:
        return False
    folder = storage.path(other.source).resolve()
    root = folder.parents[min(2, len(folder.parents) - 1)]
    return storage.path(run.source).resolve().is_relative_to(root)


def _job_of(run: Run) -> training_job.TrainingJob | None:
    """Returns the job to run a training again, None if that is no longer possible."""
    if not run.source:
        return None
    try:
        path = storage.path(run.source) / training_job.FILE_NAME
        if not storage.exists(path):
            return None
        job = training_job.TrainingJob.read(path)
        return job if job.is_unchanged else None
    except errors.UserError:  # of another version, or its code is not there
        return None
