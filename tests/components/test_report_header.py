"""The header of the components' reports: where it comes from, and the links between them."""

import pathlib
import re

import pytest
from gated_project import artifact_in
from perf_records import profile_record, training_record
from tfx.dsl.components.base import base_executor
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import standard_artifacts

from tfx_perf.components import artifacts, types
from tfx_perf.components.optimized_trainer import executor as optimized_trainer
from tfx_perf.components.perf_evaluator import executor
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.config import PerfConfig
from tfx_perf.config.gate import GateSettings
from tfx_perf.core import unmeasured
from tfx_perf.report import page as report_page
from tfx_perf.report.page import Origin
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

pytestmark = pytest.mark.each_choice


def context_of(node):
    return base_executor.BaseExecutor.Context(
        pipeline_node=pipeline_pb2.PipelineNode(node_info=pipeline_pb2.NodeInfo(id=node)),
        pipeline_info=pipeline_pb2.PipelineInfo(id="taxi"),
        pipeline_run_id="run-7",
    )


@pytest.fixture
def place(tmp_path):
    """Returns an artifact in a pipeline root, in its folder as TFX names it."""
    return lambda kind, node, key: artifact_in(tmp_path / node / key / "1", kind)


def published(item):
    return (pathlib.Path(item.uri) / report_page.FILE_NAME).read_text()


def followed(item):
    """Returns the files that a report links to, by link text."""
    found = re.findall(r'<a href="([^"]+)">([^<]+)</a>', published(item))
    return {name: (pathlib.Path(item.uri) / target).resolve() for target, name in found}


def test_the_gates_report_leads_to_those_of_its_inputs(place):
    inputs = {
        "perf_metrics": [place(types.PerfMetrics, "OptimizedTrainer", "perf_metrics")],
        "memory_profile": [place(types.MemoryProfile, "MemoryProfiler", "memory_profile")],
        "input_plan": [place(types.InputPlan, "InputTuner", "input_plan")],
        "model": [place(standard_artifacts.Model, "OptimizedTrainer", "model")],
    }
    (trained,), (profile,), (plan,) = (
        inputs[key] for key in ("perf_metrics", "memory_profile", "input_plan")
    )
    training_record(0.01).write(pathlib.Path(trained.uri) / "metrics.json")
    profile_record(500).write(pathlib.Path(profile.uri) / "profile.json")
    unmeasured.MissingMeasurement(reason="x").write(pathlib.Path(plan.uri) / unmeasured.FILE_NAME)
    for item in (trained, profile):
        (pathlib.Path(item.uri) / report_page.FILE_NAME).write_text("a report")
    outputs = {
        "blessing": [place(standard_artifacts.InfraBlessing, "PerfEvaluator", "blessing")],
        "evaluation": [place(types.PerfEvaluation, "PerfEvaluator", "evaluation")],
        "updated_ledger": [place(types.PerfLedger, "PerfEvaluator", "updated_ledger")],
    }
    executor.Executor(context_of("PerfEvaluator")).Do(
        inputs, outputs, {"config": PerfConfig().to_json()}
    )
    (evaluation,) = outputs["evaluation"]
    for text in ("taxi", "run-7", "PerfEvaluator"):
        assert f"<b>{text}</b>" in published(evaluation)
    # The plan has no report here, and a broken link would be useless.
    assert followed(evaluation) == {
        "OptimizedTrainer": pathlib.Path(trained.uri, "report.html").resolve(),
        "MemoryProfiler": pathlib.Path(profile.uri, "report.html").resolve(),
    }


def test_without_a_context_nothing_is_invented():
    assert artifacts.origin_of(None, {}) == Origin()


def job_of(plan):
    return TrainingJob(
        inputs="{}", exec_properties={"config": PerfConfig().to_json()}, code="", plan=plan
    )


@pytest.mark.parametrize("measured", [True, False])
def test_a_trainings_report_has_the_header_whether_it_was_measured_or_not(place, measured):
    target = place(types.PerfMetrics, "OptimizedTrainer", "perf_metrics")
    found = training_record(0.01) if measured else unmeasured.MissingMeasurement(reason="no fit")
    optimized_trainer.publish(
        job_of(PLAIN_FIT),
        {"model": [standard_artifacts.Model()], "perf_metrics": [target]},
        found,
        strategy=None,
        origin=Origin(node="my-trainer"),
    )
    assert "<b>my-trainer</b>" in published(target)


def test_the_gates_report_names_the_plan(place):
    trained = place(types.PerfMetrics, "OptimizedTrainer", "perf_metrics")
    record = training_record(0.01, plan=TrainingPlan(steps_per_execution=50))
    record.write(pathlib.Path(trained.uri) / "metrics.json")
    run = executor.read_run({"perf_metrics": [trained]}, settings=GateSettings())
    assert run.plan == "50 steps per execution"
