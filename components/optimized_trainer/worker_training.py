"""One worker's part of a training on several: the user's code, run from their shared folder."""

import pathlib
import shutil

from tfx_perf.components import trainer_args
from tfx_perf.components.optimized_trainer import child
from tfx_perf.components.optimized_trainer.child import TrainingResult
from tfx_perf.components.optimized_trainer.exchange import Exchange
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import console, errors, workers
from tfx_perf.core.workers import ParameterServers, Worker
from tfx_perf.training.tuning.earlier import Earlier
from tfx_perf.training.tuning.shared_trials import SharedTrials


def train(folder: pathlib.Path, worker: Worker) -> None:
    """Runs the user's `run_fn`, whose strategy finds the other workers by `TF_CONFIG`.

    All workers save, because saving may need all of them; only the chief's model is kept. With
    parameter servers, only the coordinator runs `run_fn`.
    """
    exchange = Exchange(folder)
    job = exchange.job
    distribution = job.settings.distribution
    if distribution.workers and not worker.is_chief:  # on one machine, the chief has the port
        job = job.with_settings("monitoring", metrics_port=None)
    servers = workers.these_servers()
    worker_count = servers.worker_count if servers else worker.count
    if (servers, worker_count) != (distribution.servers, distribution.worker_count):
        raise errors.UserError(
            f"Expected the processes that the settings in distribution say, "
            f"{_in_words(distribution.servers, distribution.worker_count)}. Received: "
            f"{_in_words(servers, worker_count)} in {workers.VARIABLE}."
        )
    saved = exchange.begin(worker)
    known, checkpoint_folder = exchange.known_plan, job.checkpoint_folder
    earlier_choices = Earlier(known.key, folder=checkpoint_folder)
    why_none = _why_no_trials(distribution, checkpoint_folder=checkpoint_folder)
    trials = SharedTrials(
        child.settings_of(job),
        known=known,
        folder=None if why_none else checkpoint_folder,
        why_none=why_none,
    )
    if worker.is_chief:
        console.set_status("building the model")
    record = child.run(
        job,
        trainer_args.outputs_in(str(saved)),
        choice=known.choice or earlier_choices.plan(expected_runs=job.expected_runs),
        choose=trials.choose,
        worker_count=worker.count,
    )
    if worker.is_chief:
        exchange.report(TrainingResult(record=record))
    else:
        shutil.rmtree(saved, ignore_errors=True)


def _why_no_trials(distribution: DistributionSettings, *, checkpoint_folder: str | None) -> str:
    """Returns why the workers try no plans, and what to do; empty if they do."""
    if not distribution.restarts:
        return (
            "a trial may end a worker, which would not be restarted with distribution.restarts=0; "
            "remove that, or set it to 1"
        )
    if checkpoint_folder is None:
        return (
            "no folder is known in which workers that are started again would find the plan; set "
            "training.checkpoint_folder"
        )
    return ""


def _in_words(servers: ParameterServers | None, worker_count: int) -> str:
    beside = f" and {servers.server_count} parameter servers" if servers else ""
    return f"{worker_count} workers{beside}"
