"""oneDNN, tried before all else: plain `fit` with it and without, in turns, a process each."""

import pathlib

from tfx_perf.components.optimized_trainer import plain_turns
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.hardware import onednn
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials.plain_fit_turns import PlainFitTurns


def are_open(job: TrainingJob) -> bool:
    """Returns whether turns may be worth it.

    They are not where TensorFlow uses oneDNN anyway, or the user has decided, or memory is short
    (`recompute`): two processes would train at once.
    """
    settings = job.settings.training
    return "onednn" not in settings.excluded_speedups and (
        onednn.is_open() and not settings.recompute
    )


def take(job: TrainingJob, *, log_folder: pathlib.Path) -> PlainFitTurns:
    """Trains plain `fit` with oneDNN and without, in turns.

    Args:
        job: the training.
        log_folder: where the processes' output goes.
    """
    return plain_turns.take(
        job,
        {"onednn-on": TrainingPlan(onednn=True)},
        as_it_is="onednn-off",
        budget_seconds=job.settings.training.trial_budget_seconds,
        loss_passes=1,
        log_folder=log_folder,
    )
