"""Profiles the user's training step in processes of its own, and publishes the result."""

import pathlib
import tempfile
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils
from tfx.utils import json_utils

from tfx_perf.components import artifacts, trainer_args
from tfx_perf.components.memory_profiler import attempts
from tfx_perf.config import PerfConfig
from tfx_perf.core import storage, unmeasured
from tfx_perf.memory import record
from tfx_perf.report import memory as memory_report

_Artifacts = dict[str, list[artifact.Artifact]]


class Executor(base_executor.BaseExecutor):
    """Profiles in child processes and publishes what it found."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: _Artifacts, output_dict: _Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Profiles the user's training step; the artifact has what was measured, or the reason."""
        exec_properties = trainer_args.with_train_steps(exec_properties)
        settings = PerfConfig.from_json(exec_properties["config"]).memory
        target = artifact_utils.get_single_instance(output_dict["memory_profile"])
        storage.path(target.uri)  # a store without its driver is said at once
        origin = artifacts.origin_of(self._context, input_dict)
        with tempfile.TemporaryDirectory(prefix="memory-profiler-") as name:
            folder = pathlib.Path(name)
            found = attempts.Attempts(
                json_utils.dumps(input_dict), exec_properties, settings=settings, folder=folder
            ).profile()
            if isinstance(found, unmeasured.Unmeasured):
                artifacts.publish_unmeasured(
                    target,
                    found.reason,
                    title=memory_report.TITLE,
                    labels={"not_measured": found.reason},
                    may_pass=found.may_pass,
                    origin=origin,
                )
            else:
                artifacts.publish(
                    target,
                    found,
                    file_name=record.FILE_NAME,
                    figures=found.figures(),
                    labels={
                        "keras": found.keras,
                        "device": found.device,
                        "batch_sizes": "; ".join(
                            f"{size}: {status}" for size, status in found.endings.items()
                        ),
                    },
                    page=memory_report.report_on(found),
                    origin=origin,
                    remark=found.remark,
                )
            for log in sorted(folder.glob("*.log")):
                storage.copy(log, target.uri)
