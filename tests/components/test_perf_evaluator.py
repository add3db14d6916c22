"""PerfEvaluator's executor by itself."""

import pathlib

import pytest
from gated_project import SETTINGS, artifact_in, gate_outputs
from perf_records import profile_record, training_record
from tfx.types import standard_artifacts

from tfx_perf.components import types
from tfx_perf.components.perf_evaluator import executor
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, unmeasured
from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.ledger import FIRST_RUNS, Ledger

pytestmark = pytest.mark.each_choice

FAST, SLOW = 0.010, 0.020


class Gate:
    """Runs the executor in a folder, one run after another."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0

    def run(self, step_time_seconds, *, ledger=None, profile=None, settings=SETTINGS, infra=None):
        """Judges a run with that step time and returns the output artifacts."""
        self.count += 1
        folder = self.folder / str(self.count)
        model = artifact_in(folder / "model", standard_artifacts.Model)
        model.id = 40 + self.count
        perf_metrics = artifact_in(folder / "metrics", types.PerfMetrics)
        if step_time_seconds is None:
            record = unmeasured.MissingMeasurement(reason="nobody knows")
            record.write(folder / "metrics" / unmeasured.FILE_NAME)
        else:
            training_record(step_time_seconds).write(folder / "metrics" / "metrics.json")
        outputs = gate_outputs(folder)
        inputs = {"model": [model], "perf_metrics": [perf_metrics]}
        if ledger is not None:
            inputs["ledger"] = ledger
        if profile is not None:
            inputs["memory_profile"] = [artifact_in(folder / "profile", types.MemoryProfile)]
            profile.write(folder / "profile" / "profile.json")
        if infra is not None:
            inputs["infra_blessing"] = [standard_artifacts.InfraBlessing()]
            inputs["infra_blessing"][0].set_int_custom_property("blessed", infra)
        executor.Executor().Do(inputs, outputs, {"config": settings.to_json()})
        return {"model": model, **{key: item for key, (item,) in outputs.items()}}


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path)


def ledger_in(outputs):
    return Ledger.read(pathlib.Path(outputs["updated_ledger"].uri) / "ledger.json")


@pytest.mark.parametrize("ledger", [None, []])
def test_the_first_run_is_blessed_and_begins_the_ledger(gate, ledger):
    outputs = gate.run(FAST, ledger=ledger)
    blessing = outputs["blessing"]
    assert blessing.get_int_custom_property("blessed") == 1
    assert blessing.get_int_custom_property("current_model_id") == 41
    assert blessing.get_string_custom_property("current_model") == outputs["model"].uri
    assert blessing.get_string_custom_property("blessing_message").startswith("Blessed")
    assert blessing.get_string_custom_property("component_id") == "PerfEvaluator"
    assert [path.name for path in pathlib.Path(blessing.uri).iterdir()] == ["INFRA_BLESSED"]
    assert [entry.figures["step_time_seconds"] for entry in ledger_in(outputs).entries] == [FAST]


def test_a_regression_is_refused_and_the_ledger_passed_on_unchanged(gate):
    first = gate.run(FAST)
    second = gate.run(SLOW, ledger=[first["updated_ledger"]])
    blessing = second["blessing"]
    assert blessing.get_int_custom_property("blessed") == 0
    assert [path.name for path in pathlib.Path(blessing.uri).iterdir()] == ["INFRA_NOT_BLESSED"]
    assert ledger_in(second) == ledger_in(first)
    third = gate.run(FAST, ledger=[second["updated_ledger"]])
    assert third["blessing"].get_int_custom_property("blessed") == 1
    assert len(ledger_in(third).entries) == 2


@pytest.mark.parametrize("infra", [0, 1])
def test_with_infra_validator_both_must_bless(gate, infra):
    outputs = gate.run(FAST, infra=infra)
    assert outputs["blessing"].get_int_custom_property("blessed") == infra
    marker = "INFRA_BLESSED" if infra else "INFRA_NOT_BLESSED"
    assert (pathlib.Path(outputs["blessing"].uri) / marker).exists()
    message = outputs["blessing"].get_string_custom_property("blessing_message")
    assert message.startswith("Blessed" if infra else "InfraValidator has not blessed")
    record = GateRecord.read(pathlib.Path(outputs["evaluation"].uri) / "evaluation.json")
    assert record.blessed


def test_a_training_without_figures_is_invalid_and_says_why(gate):
    first = gate.run(FAST)
    outputs = gate.run(None, ledger=[first["updated_ledger"]])
    record = GateRecord.read(pathlib.Path(outputs["evaluation"].uri) / "evaluation.json")
    assert (record.blessed, record.verdict.value) == (False, "invalid")
    assert "nobody knows" in record.headline
    assert ledger_in(outputs) == ledger_in(first)


def test_the_evaluation_has_payload_report_and_figures(gate, monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    first = gate.run(FAST)
    evaluation = gate.run(SLOW, ledger=[first["updated_ledger"]])["evaluation"]
    record = GateRecord.read(pathlib.Path(evaluation.uri) / "evaluation.json")
    assert not record.blessed
    assert evaluation.get_float_custom_property("failed_rule_count") == 2.0  # and examples/s
    assert evaluation.get_string_custom_property("verdict") == "regression"
    assert evaluation.get_float_custom_property("baseline_run_count") == 1.0
    assert evaluation.get_string_custom_property("headline") == record.headline
    for name in ("report.html", "evaluation.md", "junit.xml"):
        assert record.headline in (pathlib.Path(evaluation.uri) / name).read_text()
    assert record.headline in (tmp_path / "summary.md").read_text()


def test_the_ledger_keeps_as_many_runs_as_configured(gate):
    settings = PerfConfig.from_dict({"gate": {"baseline_runs": 2, "ledger_size": 2}})
    outputs = gate.run(FAST, settings=settings)
    for _ in range(8):
        outputs = gate.run(FAST, ledger=[outputs["updated_ledger"]], settings=settings)
    assert len(ledger_in(outputs).entries) == FIRST_RUNS + 2


def test_rules_cover_the_figures_of_every_input_and_refuse_a_missing_input(gate):
    settings = PerfConfig.from_dict(
        {"gate": {"use_defaults": False, "rules": {"step_peak_bytes": {"max": 500}}}}
    )
    blessings = [
        gate.run(FAST, profile=profile, settings=settings)["blessing"]
        for profile in (profile_record(500), profile_record(501), None)
    ]
    assert [blessing.get_int_custom_property("blessed") for blessing in blessings] == [1, 0, 0]
    message = blessings[-1].get_string_custom_property("blessing_message")
    assert "MemoryProfiler recorded no finite value" in message


def test_a_corrupt_ledger_stops_the_gate_and_stays_as_it_is(gate):
    first = gate.run(FAST)
    path = pathlib.Path(first["updated_ledger"].uri) / "ledger.json"
    path.write_text('{"schema": "tfx_perf.led')
    with pytest.raises(errors.UserError, match="Restore the file"):
        gate.run(FAST, ledger=[first["updated_ledger"]])
    assert path.read_text() == '{"schema": "tfx_perf.led'
    assert list((gate.folder / "2" / "blessing").iterdir()) == []
    assert list((gate.folder / "2" / "updated_ledger").iterdir()) == []
