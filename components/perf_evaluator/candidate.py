"""Makes the run to be judged out of what the pipeline has measured."""

import upath
from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils

from tfx_perf import cache_key, storage, unmeasured
from tfx_perf.components.perf_evaluator import quality
from tfx_perf.gate.run import Run
from tfx_perf.gate.run import Run
from tfx_perf.input import record as input_record
from tfx_perf.input.record import TuningRecord
from tfx_perf.memory import record as memory_record
from tfx_perf.memory.record import ProfileRecord
from tfx_perf.settings.gate import GateSettings
from tfx_perf.training import record as training_record
from tfx_perf.training.record import TrainingRecord

_OPTIONAL_RECORDS: dict[str, tuple[type[ProfileRecord] | type[TuningRecord], str]] = {
    "memory_profile": (ProfileRecord, memory_record.FILE_NAME),
    "input_plan": (TuningRecord, input_record.FILE_NAME),
}


def read(
    input_dict: dict[str, list[artifact.Artifact]],
    *,
    settings: GateSettings,
    context: base_executor.BaseExecutor.Context | None,
) -> Run:
    """Reads the run's figures from every input that has some.

    Args:
        input_dict: of the executor.
        settings: with the price of the machine, if it is known.
        context: names pipeline, node and run; None: the folder of the figures stands for them.

    Raises:
        UserError: an input cannot be read.
    """
    source = artifact_utils.get_single_instance(input_dict["perf_metrics"])
    file, training, why_unmeasured = _training_in(storage.path(source.uri))
    figures: dict[str, float | int | None] = {}
    for key, (record_class, file_name) in _OPTIONAL_RECORDS.items():
        for item in input_dict.get(key) or []:
            if unmeasured.reason_in(item.uri) is None:
                figures |= record_class.read(storage.path(item.uri) / file_name).figures()
    evaluation: dict[str, float] = {}
    gains: dict[str, float] = {}
    for item in input_dict.get("model_evaluation") or []:
        found, gained = quality.overall_metrics(item.uri)
        evaluation |= found
        gains |= gained
    run_id = context.pipeline_run_id if context else None
    node = context.pipeline_node if context else None
    pipeline = context.pipeline_info if context else None
    return Run.of_training(
        training,
        figures=figures,
        settings=settings,
        run_id=run_id or source.uri,
        pipeline=pipeline.id if pipeline else "",
        node=node.node_info.id if node else "",
        # The path alone is used again where the pipeline's root and metadata have been removed.
        artifact=cache_key.digest(source.uri.encode(), storage.read_bytes(file)),
        evaluation=evaluation,
        evaluation_gains=gains,
        unmeasured=why_unmeasured,
        source=source.uri,
    )


def _training_in(folder: upath.UPath) -> tuple[upath.UPath, TrainingRecord | None, str]:
    """Returns the file that names the training, its record, and why it has none."""
    reason = unmeasured.reason_in(folder)
    if reason is not None:
        return folder / unmeasured.FILE_NAME, None, reason
    file = folder / training_record.FILE_NAME
    return file, TrainingRecord.read(file), ""
