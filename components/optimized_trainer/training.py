"""One training with a plan, here or in a process with the environment that the plan needs."""

import logging
import pathlib
from typing import Any

from tfx.dsl.io import fileio
from tfx.types import artifact, artifact_utils
from tfx.utils import json_utils

from tfx_perf import config, errors, interception, records
from tfx_perf.components import artifacts, child, trainer_args
from tfx_perf.components.optimized_trainer import job
from tfx_perf.hardware import onednn
from tfx_perf.report import training_report
from tfx_perf.training import aot_export, precision, record, session
from tfx_perf.training.lines import keras_line
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice

_LOGGER = logging.getLogger(__name__)
_TARGET = f"{__name__}:carry_out"

_Artifacts = dict[str, list[artifact.Artifact]]


class Training(records.Record):
    """What is to be trained, and how; JSON, so that another process can do it.

    Attributes:
        inputs: OptimizedTrainer's input artifacts, by `tfx.utils.json_utils`.
        outputs: its output artifacts, likewise.
        exec_properties: its execution properties.
        code: digest of the training code and its arguments.
        plan: of the training; None leaves it to the session.
        given: the choice that the plan is of; None for one that goes on from a checkpoint.
        checkpoint_folder: see `PerfConfig`.
    """

    inputs: str
    outputs: str
    exec_properties: dict[str, Any]
    code: str
    plan: TrainingPlan | None
    given: PlanChoice | None
    checkpoint_folder: str | None

    def run(self, output_dict: _Artifacts) -> None:
        """Trains, and publishes into the output artifacts.

        Args:
            output_dict: `outputs`; their properties are set.

        Raises:
            UserError: as `executor.Executor.Do`.
            MeasurementError: the process for it failed; the cause is in its output.
            RuntimeError: `run_fn` ended without having saved a model.
        """
        if self.plan is None or not self.plan.onednn or onednn.is_on():
            self._train(output_dict)
            return
        _LOGGER.info("Training in a process of its own, with oneDNN.")
        published = child.run_in_child(
            _TARGET,
            {"training": self.model_dump(mode="json")},
            timeout_seconds=None,
            log_path=None,
            environment=onednn.ON,
        )
        for key, found in json_utils.loads(published).items():
            for item, own in zip(found, output_dict[key], strict=True):
                own.set_mlmd_artifact(item.mlmd_artifact)

    def _train(self, output_dict: _Artifacts) -> None:
        input_dict, settings = json_utils.loads(self.inputs), self._settings
        run_fn = trainer_args.load_run_fn(self.exec_properties)
        arguments = trainer_args.fn_args(input_dict, output_dict, self.exec_properties)
        target = artifact_utils.get_single_instance(output_dict["perf_metrics"])
        if settings.training.seed is not None:
            keras_line.set_random_seed(settings.training.seed)
        training = session.TrainingSession(settings, given=self.given)
        policy = precision.fixed(settings.training.precision) or (
            self.plan and self.plan.precision
        )
        with precision.policy(policy), interception.intercepting_fit(training.fit):
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
        job.TrainingJob(
            inputs=self.inputs,
            exec_properties=self.exec_properties,
            code=self.code,
            plan=found.plan,
        ).write(pathlib.Path(target.uri, job.FILE_NAME))

    @property
    def _settings(self) -> config.PerfConfig:
        settings = config.PerfConfig.from_json(self.exec_properties["config"])
        training = settings.training.model_copy(
            update={"checkpoint_folder": self.checkpoint_folder}
        )
        return settings.model_copy(update={"training": training})


def carry_out(*, training: dict[str, Any]) -> str:
    """Carries out a `Training`, in its child process; returns its outputs with their properties."""
    found = Training.model_validate(training)
    outputs = json_utils.loads(found.outputs)
    found.run(outputs)
    return json_utils.dumps(outputs)


def _aot_export(folder: str, signature: str | None) -> list[str]:
    """Compiles the saved model if that is wanted; returns what came of it, in sentences."""
    if signature is None:
        return []
    try:
        return [f"compiled ahead of time: {aot_export.export(folder, signature=signature)}"]
    except errors.MeasurementError as error:  # the model is good all the same
        _LOGGER.warning("%s", error)
        return [f"not compiled ahead of time: {error}"]
