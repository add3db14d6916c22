"""Runs the gate on the artifacts of a pipeline run."""

import functools
import itertools
import logging
from typing import Any

import upath
from tfx.components.evaluator import constants
from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils

from tfx_perf import errors, storage
from tfx_perf.components import artifacts
from tfx_perf.components.perf_evaluator import candidate, remeasuring, resolved_ledgers
from tfx_perf.config import PerfConfig
from tfx_perf.gate import baseline, explanation, record, verdict
from tfx_perf.gate import ledger as ledgers
from tfx_perf.gate import remeasured as remeasured_lib
from tfx_perf.gate.decision import GateRecord
from tfx_perf.report import gate_junit, gate_markdown, gate_report, refusal_guide
from tfx_perf.report import page as report_page

# InfraValidator's file names, which its module keeps private.
_MARKERS = {True: "INFRA_BLESSED", False: "INFRA_NOT_BLESSED"}

_Artifacts = dict[str, list[artifact.Artifact]]

_LOGGER = logging.getLogger(__name__)


class Executor(base_executor.BaseExecutor):
    """Judges the run, writes the blessing and extends the ledger."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: _Artifacts, output_dict: _Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Judges the run.

        Args:
            input_dict: `model`, `perf_metrics` and, each possibly missing or empty,
                `memory_profile`, `input_plan`, `model_evaluation`, `ledger`, `infra_blessing`.
            output_dict: `blessing`, `evaluation`, `updated_ledger`.
            exec_properties: `config`, a `PerfConfig` as JSON.

        Raises:
            UserError: an input or `baseline_uri` cannot be read, or a blessed run cannot be
                written there; nothing is blessed and no ledger written.
            RefusalError: the run is refused and `fail_pipeline` is set; a copy of the
                evaluation is kept.
        """
        settings = PerfConfig.from_json(exec_properties["config"]).gate
        known = baseline.known(settings, resolved_ledgers.read(input_dict.get("ledger") or ()))
        judged = candidate.read(input_dict, settings=settings, context=self._context)
        judge = functools.partial(verdict.evaluate, judged, ledger=known, settings=settings)
        decision = judge()
        evaluation = artifact_utils.get_single_instance(output_dict["evaluation"])
        if settings.escalate_seconds and decision.may_be_settled:
            with storage.local_folder(evaluation.uri) as log_folder:
                remeasured = remeasure.measure(
                    judged,
                    decision.baseline_runs,
                    seconds=settings.escalate_seconds,
                    is_clear=functools.partial(remeasured_lib.is_clear, settings=settings),
                    log_folder=log_folder,
                )
            decision = judge(remeasured=remeasured)
        artifacts.publish(
            evaluation,
            decision,
            file_name=record.FILE_NAME,
            figures=decision.figures(),
            labels={
                "verdict": decision.verdict.value,
                "run_id": decision.candidate.run_id,
            },
            page=gate_report.report_on(decision),
            origin=artifacts.origin_of(self._context, input_dict),
            details=itertools.islice(messages.lines(decision), 1, None),
        )
        for name, text in (
            (gate_markdown.FILE_NAME, gate_markdown.markdown_of(decision)),
            (gate_junit.FILE_NAME, gate_junit.junit_of(decision)),
            *([] if decision.blessed else [(refusal_guide.FILE_NAME, refusal_guide.render())]),
        ):
            storage.write_text(storage.path(evaluation.uri) / name, text)
        artifacts.publish(
            artifact_utils.get_single_instance(output_dict["updated_ledger"]),
            baseline.extended(known, decision, settings=settings),
            file_name=ledgers.FILE_NAME,
            figures={},
        )
        # Last: whatever fails before this leaves nothing that Pusher takes for a blessing.
        self._bless(
            artifact_utils.get_single_instance(output_dict["blessing"]),
            decision,
            model=artifact_utils.get_single_instance(input_dict["model"]),
            validated=all(map(_has_blessed, input_dict.get("infra_blessing") or [])),
        )
        if decision.differences or decision.unread:
            _LOGGER.warning("%s", decision.headline)
        if settings.fail_pipeline and not decision.blessed:
            report = _kept(storage.path(evaluation.uri)) / report_page.FILE_NAME
            raise errors.RefusalError(f"{decision.headline} Report: {report}")

    def _bless(
        self,
        blessing: artifact.Artifact,
        decision: GateRecord,
        *,
        model: artifact.Artifact,
        validated: bool,
    ) -> None:
        """Writes the decision the way InfraValidator and Evaluator do."""
        blessed = decision.blessed and validated
        message = decision.headline
        if not validated:
            message = f"InfraValidator has not blessed the model. {message}"
        storage.write_text(storage.make_folder(blessing.uri) / _MARKERS[blessed], "")
        node = self._context.pipeline_node if self._context else None
        component_id = node.node_info.id if node else "PerfEvaluator"
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


def _kept(evaluation: upath.UPath) -> upath.UPath:
    """Copies the evaluation to where it outlasts the failed execution; returns the new folder.

    TFX deletes the outputs of an execution that fails, `<root>/<node>/evaluation/<id>`.
    """
    kept = evaluation.parent.with_name("refused") / evaluation.name
    storage.copy_tree(evaluation, kept)
    return kept
