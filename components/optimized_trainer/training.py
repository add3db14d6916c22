"""One training with its plan, in a process of its own."""

import contextlib
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from tfx.components.trainer import fn_args_utils
from tfx.dsl.io import fileio
from tfx.types import artifact, artifact_utils, standard_component_specs
from tfx.utils import json_utils, path_utils

from tfx_perf import errors, interception, storage, unmeasured
from tfx_perf.components import artifacts
from tfx_perf.components.optimized_trainer import checkpoints
from tfx_perf.components.optimized_trainer.kept_model_run import KeptModelRun
from tfx_perf.components.optimized_trainer.training_result import TrainingResult
from tfx_perf.components.processes import child
from tfx_perf.components.training_job import job as jobs
from tfx_perf.components.training_job import trainer_args
from tfx_perf.report import origin as origins
from tfx_perf.report import training_report
from tfx_perf.tf_internals import autograph
from tfx_perf.training import precision, record, session
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.trials.choice import PlanChoice
from tfx_perf.xla import aot_export

_LOGGER = logging.getLogger(__name__)

_Artifacts = dict[str, list[artifact.Artifact]]
_Fit = Callable[[interception.FitCall], Any]


def train(
    job: jobs.TrainingJob,
    output_dict: _Artifacts,
    *,
    choice: PlanChoice,
    checkpoint_folder: str | None,
    origin: origins.Origin,
) -> None:
    """Trains in a process of its own, and publishes what was measured.

    There the training has the memory to itself, whatever ran before in this process, and the
    environment that its plan needs. That process stands for this one: it writes to the same
    terminal, and SIGTERM and Ctrl-C reach it.

    Args:
        job: with the plan to train with.
        output_dict: OptimizedTrainer's; the properties of `perf_metrics` are set.
        choice: of the job's plan.
        checkpoint_folder: see `TrainingSettings`.
        origin: for the report's header.

    Raises:
        UserError: the module, the splits or the examples are not there.
        TrainingError: the user's code raised something, or the process was killed.
    """
    given = {
        "job": job.model_dump(mode="json"),
        "outputs": json_utils.dumps(output_dict),
        "choice": choice.model_dump(mode="json"),
        "checkpoint_folder": checkpoint_folder,
    }
    try:
        answer = _in_child({**given, "converts_libraries": False}, job.plan.environment)
        if answer is None:
            _LOGGER.warning("Training again, or on, with all libraries converted by AutoGraph.")
            answer = _in_child({**given, "converts_libraries": True}, job.plan.environment)
    except errors.ChildError as error:
        raise errors.TrainingError(f"The training {error.cause}.") from error
    model = artifact_utils.get_single_instance(output_dict[standard_component_specs.MODEL_KEY])
    publish(
        job,
        TrainingResult.model_validate(answer).record,
        model_folder=path_utils.serving_model_dir(model.uri),
        target=artifact_utils.get_single_instance(output_dict["perf_metrics"]),
        origin=origin,
    )


def _in_child(arguments: dict[str, Any], environment: Mapping[str, str]) -> Any:
    return child.run_in_child(
        f"{__name__}:{carry_out.__name__}",
        arguments,
        timeout_seconds=None,
        log_path=None,
        environment=environment,
        # The server has imported TensorFlow without the plan's variables.
        from_server=not environment,
    )


def carry_out(
    *,
    job: dict[str, Any],
    outputs: str,
    choice: dict[str, Any],
    checkpoint_folder: str | None,
    converts_libraries: bool,
) -> dict[str, Any] | None:
    """Is the child's side of `train`; returns the `TrainingResult`.

    None if the user's code needs the libraries converted by AutoGraph, and they are not. What it
    has trained until then is in the checkpoints, from which another process goes on.
    """
    training = jobs.TrainingJob.model_validate(job)
    properties = training.exec_properties
    spared = contextlib.nullcontext() if converts_libraries else autograph.libraries_unconverted()
    try:
        with spared:
            record = run(
                training,
                run_fn=trainer_args.load_run_fn(properties),
                arguments=trainer_args.fn_args(
                    training.input_dict, json_utils.loads(outputs), properties
                ),
                choice=PlanChoice.model_validate(choice),
                checkpoint_folder=checkpoint_folder,
            )
    except autograph.NeedsConversionError:
        if converts_libraries:
            raise
        traceback.print_exc()
        return None
    return TrainingResult(record=record).model_dump(mode="json")


def run(
    job: jobs.TrainingJob,
    *,
    run_fn: Callable[[fn_args_utils.FnArgs], None],
    arguments: fn_args_utils.FnArgs,
    choice: PlanChoice,
    checkpoint_folder: str | None,
    around: Callable[[_Fit], _Fit] = lambda fit: fit,
) -> record.TrainingRecord | unmeasured.Unmeasured:
    """Trains in this process; returns what was measured, or why nothing was.

    Args:
        job: what `run_fn` and `arguments` are of, with the plan to train with.
        run_fn: the user's.
        arguments: for it.
        choice: of the job's plan.
        checkpoint_folder: see `TrainingSettings`.
        around: makes of the measured `fit` what is called in the place of Keras'.

    Raises:
        RuntimeError: `run_fn` ended without having saved a model.
    """
    settings = job.settings
    updated = settings.training.model_copy(update={"checkpoint_folder": checkpoint_folder})
    settings = settings.model_copy(update={"training": updated})
    if settings.training.seed is not None:
        either_keras.set_random_seed(settings.training.seed)
    model_run = KeptModelRun(arguments, checkpoint_folder=checkpoint_folder)
    training = session.TrainingSession(settings, choice=choice, on_anew=model_run.begin_anew)
    training.reserve()
    with precision.policy(job.precision), interception.intercepting_fit(around(training.fit)):
        run_fn(model_run.begin())
    if not fileio.exists(arguments.serving_model_dir):
        raise RuntimeError(
            "Expected run_fn to save a model. Received: nothing in "
            f"serving_model_dir={arguments.serving_model_dir}."
        )
    model_run.publish()
    training.close()
    checkpoints.forget_choice(checkpoint_folder)
    return training.record or unmeasured.Unmeasured(reason=training.gap)


def publish(
    job: jobs.TrainingJob,
    found: record.TrainingRecord | unmeasured.Unmeasured,
    *,
    model_folder: str,
    target: artifact.Artifact,
    origin: origins.Origin,
) -> None:
    """Publishes what was measured, and compiles the saved model if that is wanted.

    Args:
        job: what was trained.
        found: what `run` returned.
        model_folder: where the model was saved.
        target: the artifact `perf_metrics`.
        origin: for the report's header.
    """
    notes = _aot_export(model_folder, job.settings.compilation.aot_signature)
    if isinstance(found, unmeasured.Unmeasured):
        # The model is good; losing it because nothing was measured would help nobody.
        artifacts.publish_unmeasured(
            target,
            found.reason,
            title=training_report.TITLE,
            labels={"plan": f"not measured: {found.reason}"},
            origin=origin,
        )
        return
    found = found.model_copy(update={"notes": (*found.notes, *notes)})
    artifacts.publish(
        target,
        found,
        file_name=record.FILE_NAME,
        figures=found.figures(),
        labels={"plan": str(found.plan), "reused_from": found.reused_from},
        page=training_report.report_on(found),
        origin=origin,
        remark=found.remark,
    )
    job.with_plan(found.plan).write(storage.path(target.uri) / jobs.FILE_NAME)


def _aot_export(folder: str, signature: str | None) -> list[str]:
    """Compiles the saved model if that is wanted; returns what came of it, in sentences."""
    if signature is None:
        return []
    try:
        return [f"compiled ahead of time: {aot_export.export(folder, signature=signature)}"]
    except errors.MeasurementError as error:  # the model is good all the same
        _LOGGER.warning("%s", error)
        return [f"not compiled ahead of time: {error}"]
