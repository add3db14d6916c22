"""Runs the gate on the artifacts of a pipeline run: reads it, judges it, writes the decision."""

import itertools
import logging
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow_model_analysis as tfma
import upath
from tfx.components.evaluator import constants
from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils

from tfx_perf.components import artifacts, in_turns, training_job
from tfx_perf.config import PerfConfig
from tfx_perf.config.gate import GateSettings
from tfx_perf.core import cache_key, errors, statistics, storage, unmeasured
from tfx_perf.gate import decision as decisions
from tfx_perf.gate import ledger as ledgers
from tfx_perf.gate import ledger_store, messages, verdict
from tfx_perf.gate.decision import AbRerun, GateRecord
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.input import record as input_record
from tfx_perf.input.record import TuningRecord
from tfx_perf.memory import record as memory_record
from tfx_perf.memory.record import ProfileRecord
from tfx_perf.report import gate as gate_report
from tfx_perf.report import page as report_page
from tfx_perf.training import record as training_record
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.tuning import processes

_LOGGER = logging.getLogger(__name__)
_OPTIONAL_RECORDS: dict[str, tuple[type[ProfileRecord] | type[TuningRecord], str]] = {
    "memory_profile": (ProfileRecord, memory_record.FILE_NAME),
    "input_plan": (TuningRecord, input_record.FILE_NAME),
}
_DIFFERENCE = "_diff"  # TFMA's suffix for the difference from a baseline model
# InfraValidator's file names, which its module keeps private.
_MARKERS = {True: "INFRA_BLESSED", False: "INFRA_NOT_BLESSED"}
_Artifacts = dict[str, list[artifact.Artifact]]


class Executor(base_executor.BaseExecutor):
    """Judges the run, writes the blessing and extends the ledger."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: _Artifacts, output_dict: _Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Judges the run.

        After a `UserError`, nothing is blessed and no ledger written. With `fail_pipeline`, a
        refusal raises a `RefusalError` and a copy of the evaluation is kept.
        """
        settings = PerfConfig.from_json(exec_properties["config"]).gate
        known = ledger_store.known(settings, _ledgers_in(input_dict.get("ledger") or ()))
        origin = artifacts.origin_of(self._context, input_dict)
        judged = read_run(input_dict, settings=settings, origin=origin)
        evaluation = artifact_utils.get_single_instance(output_dict["evaluation"])

        def in_turns_with(blessed: Sequence[Run]) -> AbRerun:
            with storage.local_folder(evaluation.uri) as log_folder:
                return measure(judged, blessed, settings=settings, log_folder=log_folder)

        decision = verdict.decide(judged, ledger=known, settings=settings, measure=in_turns_with)
        artifacts.publish(
            evaluation,
            decision,
            file_name=decisions.FILE_NAME,
            figures=decision.figures(),
            labels={"verdict": decision.verdict.value, "run_id": decision.candidate.run_id},
            page=gate_report.report_on(decision),
            origin=origin,
            details=itertools.islice(messages.lines(decision), 1, None),
        )
        for name, text in gate_report.files_beside(decision).items():
            storage.write_text(storage.path(evaluation.uri) / name, text)
        gate_report.add_to_job_summary(decision)
        artifacts.publish(
            artifact_utils.get_single_instance(output_dict["updated_ledger"]),
            ledger_store.extended(known, decision, settings=settings),
            file_name=ledgers.FILE_NAME,
        )
        # Last, so that an earlier failure leaves nothing that Pusher takes for a blessing.
        _bless(
            artifact_utils.get_single_instance(output_dict["blessing"]),
            decision,
            model=artifact_utils.get_single_instance(input_dict["model"]),
            validated=all(map(_has_blessed, input_dict.get("infra_blessing") or [])),
            component_id=origin.node or "PerfEvaluator",
        )
        if decision.differences or decision.unread:
            _LOGGER.warning("%s", decision.headline)
        if settings.fail_pipeline and not decision.blessed:
            report = _keep(storage.path(evaluation.uri)) / report_page.FILE_NAME
            raise errors.RefusalError(f"{decision.headline} Report: {report}")


def _bless(
    blessing: artifact.Artifact,
    decision: GateRecord,
    *,
    model: artifact.Artifact,
    validated: bool,
    component_id: str,
) -> None:
    blessed = decision.blessed and validated
    message = decision.headline
    if not validated:
        message = f"InfraValidator has not blessed the model. {message}"
    storage.write_text(storage.make_folder(blessing.uri) / _MARKERS[blessed], "")
    for key, label in {
        constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY: model.uri,
        constants.ARTIFACT_PROPERTY_BLESSING_MESSAGE_KEY: message,
        "component_id": component_id,
    }.items():
        blessing.set_string_custom_property(key, label)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id)
    blessing.set_int_custom_property(
        constants.ARTIFACT_PROPERTY_BLESSED_KEY,
        constants.BLESSED_VALUE if blessed else constants.NOT_BLESSED_VALUE,
    )


def _has_blessed(infra_blessing: artifact.Artifact) -> bool:
    key = constants.ARTIFACT_PROPERTY_BLESSED_KEY
    return infra_blessing.get_int_custom_property(key) == constants.BLESSED_VALUE


def _keep(evaluation: upath.UPath) -> upath.UPath:
    """Copies the evaluation to where TFX does not delete it with the failed execution's outputs."""
    copy = evaluation.parent.with_name("refused") / evaluation.name
    storage.copy_tree(evaluation, copy)
    return copy


def read_run(
    input_dict: dict[str, list[artifact.Artifact]],
    *,
    settings: GateSettings,
    origin: report_page.Origin = report_page.UNKNOWN,
) -> Run:
    """Reads the figures of all inputs; without a run's id, the figures' folder names the run."""
    source = artifact_utils.get_single_instance(input_dict["perf_metrics"])
    folder = storage.path(source.uri)
    why_unmeasured = unmeasured.reason_in(folder)
    is_measured = why_unmeasured is None
    file = folder / (training_record.FILE_NAME if is_measured else unmeasured.FILE_NAME)
    figures: dict[str, float | int | None] = {}
    for key, (record_class, file_name) in _OPTIONAL_RECORDS.items():
        for item in input_dict.get(key) or []:
            if unmeasured.reason_in(item.uri) is None:
                figures |= record_class.read(storage.path(item.uri) / file_name).figures()
    evaluation: dict[str, float] = {}
    gains: dict[str, float] = {}
    for item in input_dict.get("model_evaluation") or []:
        of_item, gained = overall_metrics(item.uri)
        evaluation |= of_item
        gains |= gained
    return Run.of_training(
        TrainingRecord.read(file) if is_measured else None,
        figures=figures,
        settings=settings,
        run_id=origin.run_id or source.uri,
        pipeline=origin.pipeline,
        node=origin.node,
        # Not the path alone: it recurs after the pipeline's root and metadata have been removed.
        artifact=cache_key.digest(source.uri.encode(), storage.read_bytes(file)),
        evaluation=evaluation,
        evaluation_gains=gains,
        unmeasured=why_unmeasured or "",
        source=source.uri,
    )


def overall_metrics(uri: str) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the candidate's metrics over all examples, and their differences from the baseline's.

    Only finite values; there are no differences if Evaluator had no baseline model. For a model
    with several outputs, names are `OUTPUT/NAME`. Slices are left to TFMA's own thresholds.
    """
    try:
        result = tfma.load_eval_result(uri)
    except Exception as error:  # TFMA documents none, and raises what its readers do
        raise errors.UserError(
            f"Expected the evaluation that TFX's Evaluator has written. Received: uri={uri} "
            f"({' '.join(str(error).split())[:200]})."
        ) from error
    if not result.slicing_metrics:  # TFMA takes a folder without an evaluation for an empty one
        raise errors.UserError(
            "Expected the evaluation that TFX's Evaluator has written, with metrics of the "
            f"candidate. Received: uri={uri}, which has none."
        )
    values: dict[str, float] = {}
    gains: dict[str, float] = {}
    for slice_key, outputs in result.slicing_metrics:
        if slice_key:
            continue
        for output, by_class in outputs.items():
            for name, value in by_class.get("", {}).items():
                number = float(value.get("doubleValue", math.nan))
                metric = name.removesuffix(_DIFFERENCE)
                is_gain = metric != name and metric in by_class[""]  # not a metric of that name
                if math.isfinite(number):
                    key = metric if is_gain else name
                    group = gains if is_gain else values
                    group[f"{output}/{key}" if output else key] = number
    return values, gains


def _ledgers_in(resolved: Sequence[artifact.Artifact]) -> Iterator[Ledger]:
    """Yields the ledgers of earlier runs that a resolver found; none on the first run.

    Several are resolved because concurrent runs extend the same ledger, each without the other's
    entry. Some files may be missing, but not all.
    """
    paths = [storage.path(item.uri) / ledgers.FILE_NAME for item in resolved]
    gone = [path for path in paths if not storage.exists(path)]
    if paths and len(gone) == len(paths):
        raise errors.UserError(
            f"Expected the ledger of an earlier run. Received: path={gone[-1]}, which does not "
            "exist. Restore the file. If you have deleted the pipeline's output, delete its "
            "metadata database, too; or run once without the ledger input to begin a new one."
        )
    for path in gone:
        _LOGGER.warning("The ledger %s is gone; newer ones have its runs.", path)
    for path in paths:
        if path in gone:
            continue
        try:
            yield Ledger.read(path)
        except errors.UserError as error:
            raise errors.UserError(
                f"{error} Restore the file; or remove it and, if no other ledger is left, run "
                "once without the ledger input to begin a new one."
            ) from error


def measure(
    candidate: Run, baseline: Sequence[Run], *, settings: GateSettings, log_folder: pathlib.Path
) -> AbRerun:
    """Trains the candidate and the last repeatable blessed run in turns, block by block.

    On a busy host, it continues beyond the usual number of blocks, until more measurements would
    change no answer. `gate.rerun_seconds` includes imports and compilation.
    """
    if not baseline:
        return AbRerun(reason="no blessed run has a model of this size, within 2%")
    seconds = settings.rerun_seconds
    candidate_job, root = _job_of(candidate), _root(candidate)
    # Only from this pipeline's root: the job's code is run, and a ledger may be shared with others.
    beside = (run for run in reversed(baseline) if root and _root(run) == root)
    jobs = ((run.run_id, job) for run in beside if (job := _job_of(run)))
    against, other = next(jobs, (None, None))
    if candidate_job is None or other is None:
        who = "this run cannot" if candidate_job is None else "no blessed run can"
        return AbRerun(reason=f"{who} be trained again: code, data or plan is gone or has changed")
    _LOGGER.info("Training this run and %s in turns, for at most %.0f s.", against, seconds)
    try:
        measured = in_turns.train(
            {"in-turns-candidate": candidate_job, "in-turns-baseline": other},
            seconds=seconds,
            setting="gate.rerun_seconds",
            log_folder=log_folder,
            rounds=(in_turns.MAX_ROUNDS, None),
            decided=lambda blocks: decisions.is_clear(
                statistics.ratio_interval(*blocks), settings=settings
            ),
        )
    except processes.FAILURES as error:
        # A failure here changes nothing: the run already has its decision.
        return AbRerun(reason=str(error).rstrip("."))
    ratio = statistics.ratio_interval(*(trained.step_seconds for trained in measured))
    return AbRerun(against=against, ratio=ratio)


def _root(run: Run) -> upath.UPath | None:
    """Returns the pipeline root of a training's figures, `<root>/<node>/perf_metrics/<id>`."""
    try:
        *_, root = storage.path(run.source or "").resolve().parents[:3]
    except (errors.UserError, ValueError):  # a store without a driver here, or no path at all
        return None
    return root


def _job_of(run: Run) -> training_job.TrainingJob | None:
    """Returns the job to run a training again, None if that is no longer possible."""
    if not run.source:
        return None
    try:
        path = storage.path(run.source) / training_job.FILE_NAME
        if not storage.exists(path):
            return None
        job = training_job.TrainingJob.read(path)
        return job if job.is_unchanged else None
    except (errors.UserError, ValueError):  # of another version, or its code is not there
        return None
