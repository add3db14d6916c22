"""Where PerfEvaluator's baseline comes from: resolved ledgers, `baseline_uri`, or both."""

import pathlib

import pytest
from test_perf_evaluator import FAST, SLOW, Gate, ledger_in

from tfx_perf import errors
from tfx_perf.config import PerfConfig
from tfx_perf.gate.mirror import Mirror


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "runs")


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "baseline")


def mirrored(uri, **settings):
    rules = {"changes": {"step_time_seconds": 0.25}, "baseline_uri": uri}
    return PerfConfig.from_dict({"gate": rules | settings})


def blessed(outputs):
    return outputs["blessing"].get_int_custom_property("blessed")


def times(ledger):
    return [entry.figures["step_time_seconds"] for entry in ledger.entries]


def test_without_ml_metadata_the_folder_alone_is_the_baseline(gate, uri):
    """No context, no resolver: as on Kubeflow."""
    judged = [gate.run(time, config=mirrored(uri)) for time in (FAST, SLOW, FAST * 1.1)]
    assert [blessed(outputs) for outputs in judged] == [1, 0, 1]
    assert times(Mirror(uri).read()) == [FAST, FAST * 1.1]
    assert ledger_in(judged[-1]) == Mirror(uri).read()


def test_with_both_their_merge_is_the_baseline_and_the_folder_catches_up(gate, uri):
    alone = gate.run(FAST)
    Mirror(uri).add(ledger_in(gate.run(FAST * 1.01)))
    both = {"ledger": [alone["updated_ledger"]], "config": mirrored(uri)}
    refused = gate.run(SLOW, **both)
    assert blessed(refused) == 0
    assert times(ledger_in(refused)) == [FAST, FAST * 1.01]
    assert times(Mirror(uri).read()) == [FAST * 1.01]
    gate.run(FAST * 1.02, **both)
    assert times(Mirror(uri).read()) == [FAST, FAST * 1.01, FAST * 1.02]


def test_two_runs_that_resolved_the_same_ledger_both_count(gate):
    first = [gate.run(FAST)["updated_ledger"]]
    apart = [gate.run(time, ledger=first)["updated_ledger"] for time in (FAST * 1.01, FAST * 1.02)]
    merged = ledger_in(gate.run(FAST * 1.03, ledger=first + apart))
    assert times(merged) == [FAST, FAST * 1.01, FAST * 1.02, FAST * 1.03]


def test_a_ledger_that_is_gone_is_left_out_but_not_the_only_one(gate, caplog):
    first = gate.run(FAST)["updated_ledger"]
    second = gate.run(FAST * 1.01, ledger=[first])["updated_ledger"]
    pathlib.Path(first.uri, "ledger.json").unlink()
    assert times(ledger_in(gate.run(FAST, ledger=[first, second]))) == [FAST, FAST * 1.01, FAST]
    assert first.uri in caplog.text
    with pytest.raises(errors.UserError, match="does not exist. Restore the file"):
        gate.run(FAST, ledger=[first])


def test_what_cannot_be_recorded_is_not_blessed(gate):
    config = mirrored("/proc/baseline")
    with pytest.raises(errors.UserError, match="can be written. Received: baseline_uri=/proc"):
        gate.run(FAST, config=config)
    assert list((gate.folder / "1" / "blessing").iterdir()) == []
    assert list((gate.folder / "1" / "ledger").iterdir()) == []
    limits = {"step_time_seconds": {"max": FAST}}
    refused = gate.run(SLOW, config=mirrored("/proc/baseline", changes={}, limits=limits))
    assert blessed(refused) == 0  # a refusal writes nothing there


def test_a_damaged_file_stops_the_gate_and_stays_as_it_is(gate, uri):
    gate.run(FAST, config=mirrored(uri))
    (path,) = pathlib.Path(uri).iterdir()
    path.write_text(path.read_text()[:100])
    with pytest.raises(errors.UserError, match=path.name):
        gate.run(FAST, config=mirrored(uri))
    assert len(path.read_text()) == 100
    assert list((gate.folder / "2" / "blessing").iterdir()) == []
