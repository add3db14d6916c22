"""Chooses a plan for the user's `run_fn`, trains with it, and publishes the measurements."""

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact, artifact_utils, standard_component_specs
from tfx.utils import io_utils, path_utils

from tfx_perf.components import artifacts, trainer_args, training_job
from tfx_perf.components import examples as examples_lib
from tfx_perf.components.optimized_trainer import checkpoints, comparisons, distributed, supervision
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.components.types import Artifacts
from tfx_perf.core import cache_key, console, errors, storage
from tfx_perf.core.unmeasured import MissingMeasurement
from tfx_perf.input.record import TuningRecord
from tfx_perf.report import training as training_report
from tfx_perf.report.page import Origin
from tfx_perf.training import record, scaling
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.speedups.steps_per_execution import CALL_SECONDS
from tfx_perf.training.tuning import plan_key
from tfx_perf.training.tuning.choice import TRIALS_OFF, PlanChoice, StrategyChoice, plain
from tfx_perf.training.tuning.cost_model import CostModel
from tfx_perf.training.tuning.earlier import Earlier, KnownPlan, Runs
from tfx_perf.xla import aot_export

_FORM_OF_EXAMPLES = ("sparse_feature", "weighted_feature", "tensor_representation_group")
_FORM_OF_FEATURE = {"name", "type", "shape", "value_count", "value_counts", "struct_domain"}

_RUNS = 20  # the most earlier runs to search for one on a single replica

_LOGGER = logging.getLogger(__name__)


class Executor(base_executor.BaseExecutor):
    """Trains as TFX's Trainer does, but fast, and publishes the measurements."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
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
        earlier = earlier_choices(job, key_of(job))
        known = known_plan(job, earlier)
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
                    origin=origin,
                    log_folder=log_folder,
                )
            else:
                trained = supervision.train(job, output_dict, known=known, log_folder=log_folder)
                published(trained)


def publish(
    job: TrainingJob,
    outputs: Artifacts,
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
            trained,
            title=training_report.TITLE,
            labels={"plan": f"not measured: {trained.reason}"},
            origin=origin,
        )
        return
    trained = scaling.with_one_replica(trained, runs_of_node(target))
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
    except errors.MeasurementError as error:  # the model is still good
        _LOGGER.warning("%s", error)
        return [f"not compiled ahead of time: {error}"]


def key_of(job: TrainingJob) -> dict[str, str]:
    """Returns the key of the choice for a training; it is empty if there are to be no trials."""
    if not job.settings.training.tuning_seconds:
        return {}
    tuned = trainer_args.input_plan(job.input_dict)
    return plan_key.plan_key(
        job.settings,
        code=job.code,
        hyperparameters=_hyperparameters(job.input_dict),
        data=_schema_digest(job.input_dict),
        input_candidate=tuned.chosen if tuned else "",
        worker_count=job.settings.distribution.worker_count,
    )


def earlier_choices(job: TrainingJob, key: dict[str, str]) -> Earlier:
    """Returns the choices kept by an interrupted run, and those of earlier runs."""
    runs = job.input_dict.get("previous_metrics") or ()

    def newest() -> Runs:
        return artifacts.newest_first(runs, record.TrainingRecord, file_name=record.FILE_NAME)

    return Earlier(key, folder=job.checkpoint_folder, runs=newest)


def known_plan(job: TrainingJob, before: Earlier) -> KnownPlan:
    """Returns what is known about the plan before any trial."""
    if not before.key:
        return KnownPlan(choice=plain(TRIALS_OFF))
    choice, previous_plan = before.plan(expected_runs=job.expected_runs), before.previous_plan
    tuned = trainer_args.input_plan(job.input_dict)
    if choice is None and previous_plan is None and tuned and tuned.training_digest == job.code:
        choice = too_short(tuned, expected_runs=job.expected_runs)
    key = dict(before.key)
    return KnownPlan(
        key=key,
        choice=choice and choice.model_copy(update={"key": key}),
        previous_plan=previous_plan,
    )


def too_short(tuned: TuningRecord, *, expected_runs: int) -> PlanChoice | None:
    """Returns the choice of Keras' `fit` if merely starting trials costs more than they may save.

    InputTuner has timed a step of the same training code and knows the number of steps; None if
    it does not, or if trials may pay off.
    """
    rate = tuned.diagnosis and tuned.diagnosis.train_examples_per_second
    if not rate or tuned.trained_example_count is None:
        return None
    # InputTuner's timing leaves out the time that Python takes per call.
    step_seconds = tuned.batch_size / rate.value + CALL_SECONDS
    step_count = round(tuned.trained_example_count / tuned.batch_size)
    cost_model = CostModel(step_count=step_count, expected_runs=expected_runs)
    return cost_model.too_short(step_seconds=step_seconds)


def runs_of_node(target: artifact.Artifact) -> Iterator[tuple[str, record.TrainingRecord]]:
    """Yields the folders and records of the node's last runs, the newest first.

    TFX has a folder for each execution of a node, named by its number. Unlike `latest_metrics`,
    this includes runs on the same examples.
    """
    here = storage.path(target.uri)
    if not here.name.isdecimal():
        return
    try:
        beside = [int(each.name) for each in here.parent.iterdir() if each.name.isdecimal()]
    except Exception as error:  # whatever a store raises must not cost the trained model
        _LOGGER.warning("Earlier runs cannot be read: %s", errors.in_one_line(error))
        return
    for number in sorted((each for each in beside if each < int(here.name)), reverse=True)[:_RUNS]:
        file = here.parent / str(number) / record.FILE_NAME
        with contextlib.suppress(errors.UserError):  # unmeasured, or of another version
            yield str(file.parent), record.TrainingRecord.read(file)


def _schema_digest(input_dict: Artifacts) -> str:
    schema = examples_lib.read_schema(input_dict)
    if schema is None:  # a module that knows its data needs none
        return ""
    return cache_key.digest(_form(schema).SerializeToString(deterministic=True))


def _form(schema: schema_pb2.Schema) -> schema_pb2.Schema:
    """Returns the part of a schema that says how examples are parsed, not what values they have."""
    form = schema_pb2.Schema(feature=schema.feature)
    for name in _FORM_OF_EXAMPLES:
        getattr(form, name).MergeFrom(getattr(schema, name))
    for feature in form.feature:
        is_always_there = feature.presence.min_fraction == 1
        for field, _ in feature.ListFields():
            if field.name not in _FORM_OF_FEATURE:
                feature.ClearField(field.name)
        if is_always_there:
            feature.presence.min_fraction = 1
    return form


def _hyperparameters(input_dict: Artifacts) -> str:
    items = input_dict.get(standard_component_specs.HYPERPARAMETERS_KEY)
    if not items:
        return ""
    path = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(items))
    with fileio.open(path, "rb") as file:
        return cache_key.digest(file.read())
