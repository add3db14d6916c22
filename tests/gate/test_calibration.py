"""The error rates that the gate reports of itself."""

import json

import pytest
from click.testing import CliRunner
from gate_runs import ELSEWHERE, blessed_by_a_person, ledger_of, noisy, only, run

from tfx_perf.cli import calibrate
from tfx_perf.gate import history
from tfx_perf.gate.calibration import replay
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.ledger_store import LedgerFolder
from tfx_perf.gate.verdict import evaluate
from tfx_perf.mlmd import runs as recorded_runs

KEY = "step_time_seconds"
SETTINGS = only(step_time_seconds={"tolerance": 0.03, "max": 1e-9}, mfu_ratio={"min": 0.9})


def test_a_quiet_history_has_no_false_alarms_and_its_noise_is_found():
    found = replay(ledger_of(KEY, noisy(40, sd=0.01)).entries, SETTINGS)
    assert (found.replayed, found.refused) == (39, 0)
    (metric,) = found.metrics
    assert (metric.metric, metric.compared, metric.regressions) == (KEY, 39, 0)
    # Limits refuse whatever the earlier runs were; they compare nothing.
    assert (metric.beyond_limit, found.beyond_limit) == (40, 40)
    assert metric.noise == pytest.approx(0.01, rel=0.6)
    assert 0.03 < metric.detectable < 0.06


def test_rules_without_tolerance_give_no_false_alarms():
    found = replay(ledger_of(KEY, noisy(10, sd=0.01)).entries, only(**{KEY: {"max": 1e-9}}))
    assert (found.replayed, found.refused, found.beyond_limit) == (9, 0, 10)


def test_refusals_of_the_replay_are_counted():
    values = noisy(20, sd=0.005)
    values[12] *= 1.3
    found = replay(ledger_of(KEY, values).entries, SETTINGS)
    assert found.refused >= 1
    assert found.false_alarm_rate == found.refused / 19
    assert found.metrics[0].regressions >= 1


def test_as_many_runs_are_on_record_as_the_gate_would_keep():
    """What a shorter ledger has forgotten cannot be the best level."""
    values = [1.2] * 5 + [1.0] * 20 + [1.2] * 20
    kept = only(**{KEY: {"tolerance": 0.03}}).model_copy(update={"ledger_size": 8})
    longer = kept.model_copy(update={"ledger_size": 100})
    history = ledger_of(KEY, values).entries
    assert replay(history, kept).refused < replay(history, longer).refused == 20


def test_what_a_person_has_accepted_is_no_false_alarm():
    ledger = ledger_of(KEY, noisy(10, sd=0.005))
    ledger = blessed_by_a_person(ledger, run("slow", minute=100, **{KEY: 1.3}))
    for number, value in enumerate(noisy(20, sd=0.005)):
        later = run(f"n{number}", minute=200 + number, **{KEY: 1.3 * value})
        ledger = ledger.append(later, keep=99)
    assert replay(ledger.entries, SETTINGS).refused > 15
    assert replay(ledger.entries, SETTINGS, acts=ledger.acts).refused <= 1  # the accepted one


def test_runs_are_replayed_only_against_comparable_ones():
    entries = (run("a", step_time_seconds=1.0), run("b", environment=ELSEWHERE, **{KEY: 9.0}))
    found = replay(entries, SETTINGS)
    assert (found.replayed, found.false_alarm_rate, found.beyond_limit) == (0, None, 2)


def test_the_command_prints_a_table_or_json(tmp_path):
    path = tmp_path / "ledger.json"
    ledger_of(KEY, noisy(10, sd=0.01)).write(path)
    done = CliRunner().invoke(calibrate.command, [str(path), "--json"])
    document = json.loads(done.stdout)
    assert (document["replayed"], document["false_alarm_rate"]) == (9, 0.0)
    assert document["metrics"][0]["metric"] == KEY
    done = CliRunner().invoke(calibrate.command, [str(path)])
    assert "9 runs replayed" in done.stdout
    assert KEY in done.stdout


@pytest.mark.parametrize(("later", "said"), [(1, "1 run replayed"), (8, "8 runs replayed")])
def test_no_rate_is_given_for_a_few_runs(later, said, tmp_path):
    ledger_of(KEY, [*[1.0] * later, 9.0]).write(tmp_path / "ledger.json")
    done = CliRunner().invoke(calibrate.command, [str(tmp_path / "ledger.json")])
    (title,) = [line for line in done.stdout.splitlines() if "replayed" in line]
    assert said in title
    assert "1 refused. At least ten runs are needed" in title
    assert "%" not in title


def test_it_names_the_rules_it_used(tmp_path):
    ledger_of(KEY, noisy(10, sd=0.01)).write(tmp_path / "ledger.json")
    settings = tmp_path / "perf.yaml"
    settings.write_text(f"gate: {{use_defaults: false, rules: {{{KEY}: {{tolerance: 0.03}}}}}}")
    source = str(tmp_path / "ledger.json")
    done = CliRunner().invoke(calibrate.command, [source])
    assert "By the default rules; --config YAML" in done.stdout
    done = CliRunner().invoke(calibrate.command, [source, "--config", str(settings)])
    assert f"By the rules of {settings}" in " ".join(done.stdout.split())


def test_the_folder_at_baseline_uri_is_replayed_too(tmp_path):
    LedgerFolder(str(tmp_path)).add(ledger_of(KEY, noisy(10, sd=0.01)))
    done = CliRunner().invoke(calibrate.command, [str(tmp_path), "--json"])
    assert json.loads(done.stdout)["replayed"] == 9


def test_an_empty_ledger_is_no_error(tmp_path):
    Ledger().write(tmp_path / "ledger.json")
    done = CliRunner().invoke(calibrate.command, [str(tmp_path / "ledger.json")])
    assert (done.exit_code, "nothing to replay" in done.stdout) == (0, True)


@pytest.fixture
def pipeline_runs(monkeypatch, tmp_path):
    """Two judged runs of a pipeline, the later one refused, and one without an evaluation."""
    found = []
    for name, blessed in (("b", False), ("a", True)):
        folder = tmp_path / name
        folder.mkdir()
        ledger = ledger_of(KEY, [1.0] if name == "b" else [])
        record = evaluate(run(name, **{KEY: 2.0 if name == "b" else 1.0}), ledger=ledger,
                          settings=only(step_time_seconds={"tolerance": 0.03}))  # fmt: skip
        assert record.blessed is blessed
        record.write(folder / "evaluation.json")
        found.append((name, blessed, {"PerfEvaluation": str(folder)}))
    newest_first = [("gone", True, {}), *found]
    monkeypatch.setattr(history, "is_metadata", lambda source: True)
    monkeypatch.setattr(
        history,
        "read",
        lambda source, pipeline: [
            recorded_runs.RecordedRun(
                run_id=name, pipeline="p", created=None, state="complete", metrics={},
                blessed=blessed, pushed=None, folders=folders,
            )
            for name, blessed, folders in newest_first
        ],
    )  # fmt: skip


@pytest.mark.usefixtures("pipeline_runs")
def test_runs_of_a_pipeline_come_from_their_evaluations_and_refused_ones_on_request():
    judged = history.judged_runs("metadata.sqlite")
    assert [(found.run_id, is_blessed) for found, is_blessed in judged] == [
        ("a", True), ("b", False),
    ]  # fmt: skip
    shown = CliRunner().invoke(calibrate.command, ["metadata.sqlite"]).stdout
    assert "1 refused run left out; --refused replays it, too" in shown
    shown = CliRunner().invoke(calibrate.command, ["metadata.sqlite", "--refused"]).stdout
    assert "left out" not in shown
    assert "1 run replayed" in shown
