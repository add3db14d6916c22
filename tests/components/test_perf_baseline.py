"""Where PerfEvaluator finds its baseline: ledgers from a resolver, `baseline_uri`, or both."""

import pathlib
import shutil

import pytest
from test_perf_evaluator import FAST, SETTINGS, SLOW, Gate, ledger_in

from tfx_perf.core import errors
from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.ledger_store import LedgerFolder


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "runs")


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "baseline")


def mirrored(uri):
    gate_settings = SETTINGS.gate.model_copy(update={"baseline_uri": uri})
    return SETTINGS.model_copy(update={"gate": gate_settings})


def blessed(outputs):
    return outputs["blessing"].get_int_custom_property("blessed")


def times(ledger):
    return [entry.figures["step_time_seconds"] for entry in ledger.entries]


def test_without_ml_metadata_the_folder_alone_is_the_baseline(gate, uri):
    """No context, no resolver: as on Kubeflow."""
    judged = [gate.run(time, settings=mirrored(uri)) for time in (FAST, SLOW, FAST * 1.001)]
    assert [blessed(outputs) for outputs in judged] == [1, 0, 1]
    assert times(LedgerFolder(uri).read()) == [FAST, FAST * 1.001]
    assert ledger_in(judged[-1]) == LedgerFolder(uri).read()


def test_with_both_their_merge_is_the_baseline_and_the_folder_catches_up(gate, uri):
    alone = gate.run(FAST)
    LedgerFolder(uri).add(ledger_in(gate.run(FAST * 1.001)))
    both = {"ledger": [alone["updated_ledger"]], "settings": mirrored(uri)}
    refused = gate.run(SLOW, **both)
    assert blessed(refused) == 0
    assert times(ledger_in(refused)) == [FAST, FAST * 1.001]
    assert times(LedgerFolder(uri).read()) == [FAST * 1.001]
    gate.run(FAST * 1.002, **both)
    assert times(LedgerFolder(uri).read()) == [FAST, FAST * 1.001, FAST * 1.002]


def test_two_runs_that_resolved_the_same_ledger_both_count(gate):
    first = [gate.run(FAST)["updated_ledger"]]
    speeds = (FAST * 1.001, FAST * 1.002)
    apart = [gate.run(time, ledger=first)["updated_ledger"] for time in speeds]
    merged = ledger_in(gate.run(FAST * 1.003, ledger=first + apart))
    assert times(merged) == [FAST, FAST * 1.001, FAST * 1.002, FAST * 1.003]


def test_a_missing_ledger_is_skipped_unless_it_is_the_only_one(gate, caplog):
    first = gate.run(FAST)["updated_ledger"]
    second = gate.run(FAST * 1.001, ledger=[first])["updated_ledger"]
    pathlib.Path(first.uri, "ledger.json").unlink()
    assert times(ledger_in(gate.run(FAST, ledger=[first, second]))) == [FAST, FAST * 1.001, FAST]
    assert first.uri in caplog.text
    with pytest.raises(errors.UserError, match="does not exist. Restore the file"):
        gate.run(FAST, ledger=[first])


def test_a_run_that_cannot_be_recorded_is_not_blessed(gate):
    first = [gate.run(FAST)["updated_ledger"]]
    settings = mirrored("/proc/baseline")
    with pytest.raises(errors.UserError, match="can be written. Received: baseline_uri=/proc"):
        gate.run(FAST, ledger=first, settings=settings)
    assert list((gate.folder / "2" / "blessing").iterdir()) == []
    assert list((gate.folder / "2" / "updated_ledger").iterdir()) == []
    refused = gate.run(SLOW, ledger=first, settings=settings)  # a refusal writes nothing there
    assert blessed(refused) == 0


def test_on_request_a_refusal_fails_the_pipeline_and_leaves_the_evaluation_behind(gate):
    first = gate.run(FAST)["updated_ledger"]
    strict = SETTINGS.gate.model_copy(update={"fail_pipeline": True})
    settings = SETTINGS.model_copy(update={"gate": strict})
    with pytest.raises(errors.RefusalError, match="^Refused by .* Report: ") as caught:
        gate.run(SLOW, ledger=[first], settings=settings)
    report = pathlib.Path(str(caught.value).rpartition("Report: ")[2])
    assert report.is_file()
    for item in ("evaluation", "blessing", "updated_ledger"):
        shutil.rmtree(gate.folder / "2" / item)  # as TFX does with a failed execution
    decision = GateRecord.read(report.with_name("evaluation.json"))
    assert not decision.blessed
    assert decision.candidate.figures["step_time_seconds"] == SLOW
    assert blessed(gate.run(FAST, ledger=[first], settings=settings)) == 1
