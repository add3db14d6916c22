"""The inputs that PerfEvaluator reads for a run: figures, cost, step times, Evaluator's metrics.

The run is made by `gate.run`.
"""

import pandas as pd
import pytest
import tensorflow_model_analysis as tfma
from google.protobuf import text_format
from perf_records import training_record
from tfx.types import standard_artifacts

from tfx_perf.components import types
from tfx_perf.components.perf_evaluator import executor
from tfx_perf.config.gate import GateSettings
from tfx_perf.core import errors

_SPECS = """
    model_specs {{ {candidate} label_key: "label" prediction_key: "score" }} {baseline}
    slicing_specs {{}}
    metrics_specs {{ metrics {{ class_name: "AUC" }} metrics {{ class_name: "ExampleCount" }} }}
"""
_TABLE = {
    "label": [0, 0, 1, 1], "score": [0.1, 0.6, 0.4, 0.9], "before": [0.1, 0.3, 0.4, 0.9],
    "kind": ["a", "b", "a", "b"],
}  # fmt: skip


def evaluated(folder, candidate="", baseline=""):
    """Has TFMA write its evaluation into a folder."""
    text = _SPECS.format(candidate=candidate, baseline=baseline)
    config = text_format.Parse(text, tfma.EvalConfig())
    tfma.analyze_raw_data(pd.DataFrame(_TABLE), config, output_path=str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """A folder with an evaluation of the overall slice and of another one."""
    folder = tmp_path_factory.mktemp("evaluation")
    return evaluated(folder, baseline='slicing_specs { feature_keys: "kind" }')


@pytest.fixture
def inputs(tmp_path):
    """The input artifacts of a run whose steps take 10 ms."""
    artifact = types.PerfMetrics()
    artifact.uri = str(tmp_path)
    record = training_record(0.010)
    times = tuple((step, 0.010 + step / 1e5) for step in range(1, 101))
    record.model_copy(update={"step_times": times}).write(tmp_path / "metrics.json")
    return {"perf_metrics": [artifact]}


def test_the_metrics_over_all_examples_are_read_with_tfmas_loader(evaluation):
    found, gains = executor.overall_metrics(evaluation)
    assert found == {"auc": pytest.approx(0.75, abs=0.01), "example_count": 4.0}
    assert gains == {}


@pytest.mark.slow
def test_the_gains_over_the_baseline_model_are_read_too(tmp_path):
    spec = 'name: "baseline" is_baseline: true label_key: "label" prediction_key: "before"'
    folder = evaluated(tmp_path, 'name: "candidate"', f"model_specs {{ {spec} }}")
    found, gains = executor.overall_metrics(folder)
    assert found["auc"] == pytest.approx(0.75, abs=0.01)
    assert gains["auc"] == pytest.approx(-0.25, abs=0.01)


def test_a_folder_without_an_evaluation_is_refused(tmp_path):
    with pytest.raises(errors.UserError, match="Received: uri="):
        executor.overall_metrics(str(tmp_path))


def test_a_run_has_the_metrics_of_the_evaluation_beside_the_figures(inputs, evaluation):
    artifact = standard_artifacts.ModelEvaluation()
    artifact.uri = evaluation
    run = executor.read_run({**inputs, "model_evaluation": [artifact]}, settings=GateSettings())
    assert run.run_id == str(inputs["perf_metrics"][0].uri)
    assert run.figure("step_time_seconds") == 0.010
    assert run.figure("evaluation/auc") == pytest.approx(0.75, abs=0.01)
    assert run.figure("evaluation/nothing") is None


def test_the_price_of_the_machine_gives_the_cost_of_examples(inputs):
    assert (
        "cost_per_million_examples"
        not in executor.read_run(inputs, settings=GateSettings()).figures
    )
    run = executor.read_run(inputs, settings=GateSettings(price_per_hour=3.6))
    seconds = 1e6 / (64 / 0.010)
    assert run.figure("cost_per_million_examples") == pytest.approx(3.6 * seconds / 3600)


def test_the_step_times_after_warm_up_are_kept_as_quantiles(inputs):
    run = executor.read_run(inputs, settings=GateSettings())
    assert len(run.step_times) == 41
    assert run.step_times[0] == pytest.approx(0.01021)
    assert run.step_times[20] == pytest.approx(0.010605)
    assert run.step_times[-1] == pytest.approx(0.011)
