"""Runs the user's `run_fn` with `fit` taken over, and publishes what was measured."""

import logging
import pathlib
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact, artifact_utils

from tfx_perf import config, errors, interception
from tfx_perf.components import artifacts, code_digest, train_steps, trainer_args
from tfx_perf.components.optimized_trainer import checkpoints, job, plans
from tfx_perf.report import training_report
from tfx_perf.training import aot_export, precision, record, session
from tfx_perf.training.lines import keras_line

_LOGGER = logging.getLogger(__name__)

_Artifacts = dict[str, list[artifact.Artifact]]


class Executor(base_executor.BaseExecutor):
    """TFX's GenericExecutor with measured training."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: _Artifacts, output_dict: _Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Trains a model.

        The plan is that of a run before, or is found by trials in a child process: whatever
        happens there costs the speed-up, not the training, which goes on with plain `fit`.

        Args:
            input_dict: as Trainer's, and optionally `input_plan` and `previous_metrics`.
            output_dict: `model`, `model_run`, `perf_metrics`.
            exec_properties: as Trainer's, and `config` (a `PerfConfig` as JSON).

        Raises:
            UserError: the module, the splits or the examples are not there.
            RuntimeError: `run_fn` ended without having saved a model.
        """
        exec_properties = train_steps.resolved(exec_properties)
        settings = config.PerfConfig.from_json(exec_properties["config"])
        run_fn = trainer_args.load_run_fn(exec_properties)
        code = code_digest.training_digest(exec_properties)  # as it is now; it may be edited
        arguments = trainer_args.fn_args(input_dict, output_dict, exec_properties)
        target = artifact_utils.get_single_instance(output_dict["perf_metrics"])
        folder = settings.training.checkpoint_folder or checkpoints.folder_for(
            self._context, input_dict, exec_properties
        )
        given = None
        plan = session.interrupted_plan(folder)
        if plan is None:
            # Before this process touches a device or reads data: the child has all of them.
            given = plans.plan_for(
                input_dict, exec_properties, settings=settings, log_folder=pathlib.Path(target.uri)
            )
            plan = given and given.plan
        if settings.training.seed is not None:
            keras_line.set_random_seed(settings.training.seed)
        kept = settings.training.model_copy(update={"checkpoint_folder": folder})
        training = session.TrainingSession(
            settings.model_copy(update={"training": kept}), given=given
        )
        with (
            precision.policy(
                precision.fixed(settings.training.precision) or (plan and plan.precision)
            ),
            interception.intercepting_fit(training.fit),
        ):
            run_fn(arguments)
        if not fileio.exists(arguments.serving_model_dir):
            raise RuntimeError(
                "Expected run_fn to save a model. Received: nothing in "
                f"serving_model_dir={arguments.serving_model_dir}."
            )
        training.close()
        notes = _aot_export(arguments.serving_model_dir, settings.compilation.aot_signature)
        if training.record is None:
            # The model is good; losing it because nothing was measured would help nobody.
            _LOGGER.warning("run_fn did not call Model.fit, so nothing was measured.")
            target.set_string_custom_property("plan", "not measured: run_fn did not call fit")
            return
        found = training.record.model_copy(
            update={"notes": (*training.record.notes, *notes)}
        )
        labels = {"plan": str(found.plan)}
        if found.reused_from:
            labels["reused_from"] = found.reused_from
        artifacts.publish(
            target,
            found,
            file_name=record.FILE_NAME,
            figures=found.figures(),
            labels=labels,
            page=training_report.report_on(found),
        )
        job.TrainingJob.of(input_dict, exec_properties, code=code, plan=found.plan).write(
            pathlib.Path(target.uri, job.FILE_NAME)
        )


def _aot_export(folder: str, signature: str | None) -> list[str]:
    """Compiles the saved model if that is wanted; returns what came of it, in sentences."""
    if signature is None:
        return []
    try:
        return [f"compiled ahead of time: {aot_export.export(folder, signature=signature)}"]
    except errors.MeasurementError as error:  # the model is good all the same
        _LOGGER.warning("%s", error)
        return [f"not compiled ahead of time: {error}"]
