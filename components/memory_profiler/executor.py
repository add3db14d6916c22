"""Captures the user's training step and profiles it, in a process of its own."""

import logging
import os
import pathlib
import shutil
import tempfile
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils
from tfx.utils import json_utils

from tfx_perf import config, errors, interception, storage, unmeasured
from tfx_perf.components import artifacts, child, train_steps, trainer_args
from tfx_perf.memory import peak, profile, record
from tfx_perf.report import memory_report
from tfx_perf.training import precision

_LOGGER = logging.getLogger(__name__)

_LOG_FILE = "profile.log"

_Artifacts = dict[str, list[artifact.Artifact]]


class Executor(base_executor.BaseExecutor):
    """Profiles in a child process and publishes what it found."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: _Artifacts, output_dict: _Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Profiles the training step of the user's module.

        Args:
            input_dict: as Trainer's, and optionally `input_plan`.
            output_dict: `memory_profile`.
            exec_properties: `config` (a `PerfConfig` as JSON), and as Trainer's `run_fn` or
                `module_file` or `module_path`, `train_args`, `train_steps`, `eval_args`,
                `custom_config`.

        Raises:
            UserError: the module, a split or the examples are not as they must be.
            MeasurementError: the process crashed or took too long; the log is kept.
        """
        exec_properties = train_steps.resolved(exec_properties)
        settings = config.PerfConfig.from_json(exec_properties["config"]).memory
        target = artifact_utils.get_single_instance(output_dict["memory_profile"])
        storage.path(target.uri)  # a store without its driver is said at once
        # Left behind if the profiling fails, for its log: TFX removes the outputs then.
        folder = pathlib.Path(tempfile.mkdtemp(prefix="memory-profiler-"))
        child.run_in_child(
            f"{__name__}:profile_module",
            {
                "inputs": json_utils.dumps(input_dict),
                "exec_properties": dict(exec_properties),
                "folder": str(folder),
            },
            timeout_seconds=settings.timeout_seconds,
            log_path=folder / _LOG_FILE,
            environment=peak.ENVIRONMENT,
            from_server=True,
        )
        reason = unmeasured.reason_in(folder)
        if reason:
            _LOGGER.warning("No memory was profiled: %s.", reason)
            artifacts.publish(
                target,
                unmeasured.Unmeasured(reason=reason),
                file_name=unmeasured.FILE_NAME,
                figures={},
                labels={"not_measured": reason},
            )
        else:
            profiled = record.ProfileRecord.read(folder / record.FILE_NAME)
            artifacts.publish(
                target,
                profiled,
                file_name=record.FILE_NAME,
                figures=profiled.figures(),
                labels={"keras": profiled.keras, "device": profiled.device},
                page=memory_report.report_on(profiled),
            )
        storage.copy(folder / _LOG_FILE, target.uri)
        shutil.rmtree(folder)


def profile_module(*, inputs: str, exec_properties: dict[str, Any], folder: str) -> None:
    """Runs the user's `run_fn` up to its `fit` and profiles that; the child's side.

    Args:
        inputs: Trainer's input artifacts, by `tfx.utils.json_utils`.
        exec_properties: see `Executor.Do`.
        folder: where `profile.json` and whatever the module writes go; `unmeasured.json` in its
            place if the module does not call `fit`.
    """
    outputs = trainer_args.outputs_in(folder)
    arguments = trainer_args.fn_args(json_utils.loads(inputs), outputs, exec_properties)
    run_fn = trainer_args.load_run_fn(exec_properties)
    settings = config.PerfConfig.from_json(exec_properties["config"])
    with precision.policy(precision.fixed(settings.training.precision)):
        try:
            call = interception.capture_fit(lambda: run_fn(arguments))
        except errors.NoFitError:
            found = unmeasured.Unmeasured(reason=unmeasured.NO_FIT)
            found.write(pathlib.Path(folder, unmeasured.FILE_NAME))
            return
        profiled = profile.profile(call, config=settings.memory)
    profiled.write(os.path.join(folder, record.FILE_NAME))
