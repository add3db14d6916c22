"""Chooses a plan for the user's `run_fn`, runs it with that, and publishes what was measured."""

from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils, standard_component_specs
from tfx.utils import path_utils

from tfx_perf import console, storage
from tfx_perf.components import artifacts
from tfx_perf.components.optimized_trainer import (
    checkpoints,
    comparisons,
    handing_over,
    plans,
    supervision,
    training,
)
from tfx_perf.components.training_job import train_steps, trainer_args
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.training.trials.choice import TRIALS_OFF, PlanChoice, plain

_Artifacts = dict[str, list[artifact.Artifact]]


class Executor(base_executor.BaseExecutor):
    """TFX's GenericExecutor with measured training."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: _Artifacts, output_dict: _Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Trains a model.

        It is trained in a child process. The plan is that of a run before, or is found there by
        trials: whatever happens in them costs the speed-up, not the training, which goes on with
        plain `fit`.
        With several workers in the settings, or where they turn out to be faster, they try plans,
        and train.

        Args:
            input_dict: as Trainer's, and optionally `input_plan` and `previous_metrics`.
            output_dict: `model`, `model_run`, `perf_metrics`.
            exec_properties: as Trainer's, and `config` (a `PerfConfig` as JSON).

        Raises:
            UserError: the module, the splits or the examples are not there, or this machine has
                not what the settings take.
            TrainingError: the user's code raised something, or saved no model, or the process
                that trained was killed.
            MeasurementError: a worker failed.
        """
        exec_properties = train_steps.resolved(exec_properties)
        job = TrainingJob.of(input_dict, exec_properties)
        # Which reads the data, so that what is wrong is said before any process starts.
        trainer_args.fn_args(input_dict, output_dict, exec_properties)
        missing = trainer_args.missing_plan(input_dict, exec_properties)
        if missing is not None:
            console.say_at_exit(missing)
        target = artifact_utils.get_single_instance(output_dict["perf_metrics"])
        storage.path(target.uri)  # a store without its driver is said before the training
        has_trials = job.settings.training.trial_budget_seconds > 0
        key = plans.key_of(job) if has_trials else {}
        if job.settings.distribution.has_others_train:
            handing_over.train(job, output_dict, context=self._context, key=key)
            return
        origin = artifacts.origin_of(self._context, input_dict)
        folder = job.settings.training.checkpoint_folder or checkpoints.folder_for(
            self._context, input_dict, exec_properties
        )
        choice: PlanChoice | None = plain(TRIALS_OFF)
        previous_plan = None
        if has_trials:
            previous_plan = plans.previous_plan(plans.runs_before(job))
            choice = plans.known_choice(
                job, key, previous_plan=previous_plan, checkpoint_folder=folder
            )
        with checkpoints.tidied(folder), storage.local_folder(target.uri) as log_folder:
            strategy = comparisons.strategy(
                job, known=choice, key=key, checkpoint_folder=folder, log_folder=log_folder
            )
            job = job if strategy is None else job.distributed_by(strategy)
            if job.settings.distribution.has_others_train:
                handing_over.train(
                    job, output_dict, context=self._context, key=key, strategy=strategy
                )
                return
            found = supervision.train(
                job,
                output_dict,
                choice=choice,
                previous_plan=previous_plan,
                key=key,
                spent_seconds=strategy.turns_seconds if strategy else 0.0,
                checkpoint_folder=folder,
                log_folder=log_folder,
            )
        model = artifact_utils.get_single_instance(output_dict[standard_component_specs.MODEL_KEY])
        training.publish(
            job,
            found,
            strategy=strategy,
            model_folder=path_utils.serving_model_dir(model.uri),
            target=target,
            origin=origin,
        )
