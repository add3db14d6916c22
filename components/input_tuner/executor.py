"""Tunes the input in a separate process and publishes the plan."""

import pathlib
import tempfile
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils
from tfx.utils import json_utils

from tfx_perf import isolate
from tfx_perf.components import artifacts, trainer_args
from tfx_perf.components import examples as examples_lib
from tfx_perf.components.input_tuner import child
from tfx_perf.components.types import Artifacts
from tfx_perf.config import InputSettings, PerfConfig
from tfx_perf.core import errors, storage
from tfx_perf.hardware import host
from tfx_perf.input import candidates, record
from tfx_perf.input.candidates import candidate, source
from tfx_perf.report import input as input_report

_LOG_FILE = "tuning.log"
# The search keeps its time budget; the rest is for imports and the user's own code.
_TIMEOUT_BUDGETS, _TIMEOUT_SECONDS = 3, 300


class Executor(base_executor.BaseExecutor):
    """Runs `child.plan_split` in a child process and publishes its plan."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Tunes the input of one split.

        A search that crashes, hangs or is killed for its memory costs the speedup, not the
        pipeline: the plan is then TFXIO's default, with the cause as its reason.
        """
        exec_properties = trainer_args.with_train_steps(exec_properties)
        config = PerfConfig.from_json(exec_properties["config"])
        settings, runs_are_planned = config.input, config.schedule.expected_runs is not None
        target = artifact_utils.get_single_instance(output_dict["input_plan"])
        storage.path(target.uri)  # reports a store's missing driver before the search
        with tempfile.TemporaryDirectory(prefix="input-tuner-") as folder:
            log_path = pathlib.Path(folder, _LOG_FILE)
            reason, has_failed = "", False
            try:
                answer = isolate.run(
                    f"{child.__name__}:plan_split",
                    {
                        "inputs": json_utils.dumps(input_dict),
                        "exec_properties": dict(exec_properties),
                        "folder": folder,
                    },
                    timeout_seconds=_TIMEOUT_BUDGETS * settings.tuning_seconds + _TIMEOUT_SECONDS,
                    log_path=log_path,
                    is_forked=True,
                )
                if isinstance(answer, str):
                    reason = f"The input stays as the training code makes it: {answer}."
            except errors.ChildError as error:
                reason = f"The search failed, so the default stays: its process {error.cause}."
                has_failed = True
            if reason:
                plan = _default_plan(
                    input_dict["examples"],
                    split=exec_properties["split"],
                    settings=settings,
                    reason=reason,
                )
                remark = f"{plan.remark} Log: {storage.path(target.uri) / _LOG_FILE}"
            else:
                plan = record.TuningRecord.model_validate(answer)
                remark = plan.remark
            artifacts.publish(
                target,
                plan,
                file_name=record.FILE_NAME,
                figures=plan.figures(),
                labels={"chosen_candidate": plan.chosen, "reused_from": plan.reused_from},
                page=input_report.report_on(plan, runs_are_planned=runs_are_planned),
                origin=artifacts.origin_of(self._context, input_dict),
                remark=remark,
                may_pass=has_failed or plan.needs_another_search,
            )
            storage.copy(log_path, target.uri)


def _default_plan(
    examples: list[artifact.Artifact], *, split: str, settings: InputSettings, reason: str
) -> record.TuningRecord:
    data = source.RecordSource(
        file_patterns=examples_lib.split_patterns(examples, split),
        default_factory=examples_lib.default_factory(examples),
        options=None,
    )
    default = candidates.Default()
    try:
        compression = data.compression
    except candidate.NotApplicable:  # only some of the files are compressed
        compression = ""
    return record.TuningRecord(
        chosen=default.name,
        reason=reason,
        outcomes=(
            record.CandidateOutcome(
                name=default.name, description=default.description, status="chosen"
            ),
        ),
        batch_size=settings.batch_size or child.BATCH_SIZE,
        rounds=0,
        margin=settings.margin,
        memory_budget_bytes=settings.memory_budget_bytes or host.available_memory_bytes() // 2,
        memory_budget_configured=settings.memory_budget_bytes is not None,
        example_count=None,
        checked_example_count=0,
        file_count=len(data.files),
        file_bytes=data.total_bytes,
        compression=compression,
        tuning_time_seconds=0.0,
    )
