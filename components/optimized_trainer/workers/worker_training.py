"""One worker's part of a training on several."""

import shutil

from tfx_perf import errors
from tfx_perf.components.optimized_trainer import training
from tfx_perf.components.optimized_trainer.training_result import TrainingResult
from tfx_perf.components.optimized_trainer.workers import strategy_check
from tfx_perf.components.optimized_trainer.workers.exchange import Exchange
from tfx_perf.components.optimized_trainer.workers.trials_together import TrialsTogether
from tfx_perf.components.training_job import trainer_args
from tfx_perf.workers import Worker


def train(exchange: Exchange, worker: Worker) -> None:
    """Runs the user's `run_fn`, whose strategy finds the other workers by `TF_CONFIG`.

    All of them run it, and all of them save, because that may take steps together; but what any
    but the chief saves is thrown away.

    Args:
        exchange: where the job is, and where the results go.
        worker: which one this is.

    Raises:
        UserError: the module, the splits or the examples are not there, or the model was not
            built for these workers.
        RuntimeError: `run_fn` ended without having saved a model.
    """
    job = exchange.job
    expected = job.settings.distribution.worker_count
    if expected != worker.count:
        raise errors.UserError(
            f"Expected as many workers as the settings in distribution say, {expected}. "
            f"Received: {worker.count} in TF_CONFIG."
        )
    folder = exchange.outputs_folder(worker)
    shutil.rmtree(folder, ignore_errors=True)  # of a container that was started again
    run_fn = trainer_args.load_run_fn(job.exec_properties)
    outputs = trainer_args.outputs_in(str(folder))
    arguments = trainer_args.fn_args(
        job.input_dict, outputs, job.exec_properties, worker_count=worker.count
    )
    trials = TrialsTogether(job, exchange.known_plan)
    with strategy_check.refusing_mirrored(worker.count):
        record = training.run(
            job,
            run_fn=run_fn,
            arguments=arguments,
            choice=trials.given,
            choose=trials.choose,
            checkpoint_folder=job.settings.training.checkpoint_folder,
            around=lambda fit: strategy_check.checked(fit, worker.count),
        )
    if worker.is_chief:
        exchange.report(TrainingResult(record=record))
    else:
        shutil.rmtree(folder, ignore_errors=True)
