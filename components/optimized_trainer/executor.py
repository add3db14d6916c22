"""Chooses a plan for the user's `run_fn`, trains with it, and publishes the measurements."""

import functools
import logging
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils, standard_component_specs
from tfx.utils import path_utils

from tfx_perf.components import artifacts, trainer_args, training_job
from tfx_perf.components.optimized_trainer import (
    checkpoints,
    comparisons,
    distributed,
    plans,
    supervision,
)
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import console, errors, storage
from tfx_perf.core.unmeasured import MissingMeasurement
from tfx_perf.report import training as training_report
from tfx_perf.report.page import Origin
from tfx_perf.training import record, scaling
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.tuning.choice import StrategyChoice
from tfx_perf.xla import aot_export

_LOGGER = logging.getLogger(__name__)

_Artifacts = dict[str, list[artifact.Artifact]]


class Executor(base_executor.BaseExecutor):
    """Trains as TFX's Trainer does, but fast, and publishes the measurements."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: _Artifacts, output_dict: _Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Trains a model in a child process, or in several workers if configured.

        The plan comes from an earlier run, or from trials in that process. If the trials
        fail, the training still runs, with Keras' `fit`.
        """
        exec_properties = trainer_args.with_train_steps(exec_properties)
        job = TrainingJob.of(input_dict, exec_properties)
        # Reads the data now, so that errors appear before any process starts.
        trainer_args.fn_args(input_dict, output_dict, exec_properties)
        missing = trainer_args.missing_plan(input_dict, exec_properties)
        if missing is not None:
            console.say_at_exit(missing)
        target = artifact_utils.get_single_instance(output_dict["perf_metrics"])
        storage.path(target.uri)  # reports a store's missing driver before the training
        folder = checkpoints.folder_for(job, self._context)
        job = job.with_settings("training", checkpoint_folder=folder)
        origin = artifacts.origin_of(self._context, input_dict)
        earlier = plans.earlier(job, plans.key_of(job))
        known = plans.known_plan(job, earlier)
        with checkpoints.tidied(folder), storage.local_folder(target.uri) as log_folder:
            strategy = comparisons.strategy(job, known, earlier=earlier, log_folder=log_folder)
            if strategy is not None:
                job = job.with_settings("distribution", strategy=strategy.name)
                job = job.after_trials(strategy.turns_seconds)
            job, known = comparisons.in_one_precision(
                job, known, earlier=earlier, log_folder=log_folder
            )
            published = functools.partial(
                publish, job, output_dict, strategy=strategy, origin=origin
            )
            if job.settings.distribution.delegates_training:
                distributed.train(
                    job,
                    output_dict,
                    known=known,
                    publish=published,
                    context=self._context,
                    log_folder=log_folder,
                )
            else:
                trained = supervision.train(job, output_dict, known=known, log_folder=log_folder)
                published(trained)


def publish(
    job: TrainingJob,
    outputs: _Artifacts,
    trained: TrainingRecord | MissingMeasurement,
    *,
    strategy: StrategyChoice | None,
    origin: Origin,
) -> None:
    """Compiles the saved model if the settings ask for it, and publishes the record."""
    (target,), (model,) = (
        outputs[key] for key in ("perf_metrics", standard_component_specs.MODEL_KEY)
    )
    folder = path_utils.serving_model_dir(model.uri)
    notes = _aot_export(folder, job.settings.compilation.aot_signature)
    if isinstance(trained, MissingMeasurement):
        # The model is good; a missing measurement is no reason to lose it.
        artifacts.publish_unmeasured(
            target,
            trained.reason,
            title=training_report.TITLE,
            labels={"plan": f"not measured: {trained.reason}"},
            origin=origin,
        )
        return
    trained = scaling.with_one_replica(trained, plans.of_node(target))
    trained = trained.model_copy(update={"notes": (*trained.notes, *notes), "strategy": strategy})
    if strategy is not None:
        trained = trained.after_trials(strategy.seconds)
    runs_are_planned = job.settings.schedule.expected_runs is not None
    artifacts.publish(
        target,
        trained,
        file_name=record.FILE_NAME,
        figures=trained.figures(),
        labels={"plan": trained.trained_with, "reused_from": trained.reused_from},
        page=training_report.report_on(trained, runs_are_planned=runs_are_planned),
        origin=origin,
        remark=trained.remark,
    )
    job.with_plan(trained.plan).write(storage.path(target.uri) / training_job.FILE_NAME)


def _aot_export(folder: str, signature: str | None) -> list[str]:
    if signature is None:
        return []
    try:
        return [f"compiled ahead of time: {aot_export.export(folder, signature=signature)}"]
    except errors.MeasurementError as error:  # the model is good all the same
        _LOGGER.warning("%s", error)
        return [f"not compiled ahead of time: {error}"]
