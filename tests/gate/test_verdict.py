"""The decision over all rules."""

import math

import pydantic
import pytest
from gate_runs import ELSEWHERE, run

from tfx_perf.config import GateConfig, Limit
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.record import GateRecord
from tfx_perf.gate.verdict import evaluate

CHANGE = GateConfig(changes={"step_time_seconds": 0.25})
LIMIT = GateConfig(limits={"step_time_seconds": Limit(max=2.0)}, changes={})
NONE = GateConfig(changes={})


def ledger_of(*runs):
    return Ledger(entries=runs)


def test_the_first_run_is_blessed_loudly_and_limits_still_count():
    first = evaluate(run("a", step_time_seconds=1.0), ledger=Ledger(), settings=CHANGE)
    assert first.blessed
    assert first.outcomes[0].verdict is Verdict.NOT_CHECKED
    assert first.headline.startswith("Blessed unchecked")
    assert "no blessed run is on record" in first.headline

    slow = evaluate(run("a", step_time_seconds=3.0), ledger=Ledger(), settings=LIMIT)
    assert not slow.blessed
    assert "3.00 s" in slow.headline
    assert "2.00 s" in slow.headline


def test_a_regression_against_the_ledger_is_refused_and_an_equal_run_blessed():
    ledger = ledger_of(run("a", step_time_seconds=1.0))
    equal = evaluate(run("b", step_time_seconds=1.0), ledger=ledger, settings=CHANGE)
    worse = evaluate(run("b", step_time_seconds=1.3), ledger=ledger, settings=CHANGE)
    assert equal.blessed
    assert "Compared with 1 blessed run." in equal.headline
    assert not worse.blessed
    assert worse.headline.startswith("Refused by 1 of 1 rule. step_time_seconds:")
    assert worse.figures() == {
        "rule_count": 1.0, "failed_rule_count": 1.0, "baseline_run_count": 1.0,
    }  # fmt: skip


def test_runs_of_another_environment_are_no_baseline_and_the_headline_says_why():
    ledger = ledger_of(run("a", environment=ELSEWHERE, step_time_seconds=0.001))
    record = evaluate(run("b", step_time_seconds=1.0), ledger=ledger, settings=CHANGE)
    assert record.blessed
    assert record.baseline_runs == ()
    assert record.differences == {"device_kind": ("A100", "CPU")}
    assert "device_kind A100 -> CPU" in record.headline


def test_only_comparable_runs_of_a_mixed_ledger_count():
    ledger = ledger_of(
        run("a", step_time_seconds=1.0), run("b", environment=ELSEWHERE, step_time_seconds=9.0)
    )
    record = evaluate(run("c", step_time_seconds=8.0), ledger=ledger, settings=CHANGE)
    assert not record.blessed
    assert [known.run_id for known in record.baseline_runs] == ["a"]
    assert record.differences == {}


def test_a_missing_figure_refuses_even_on_the_first_run():
    record = evaluate(run("a"), ledger=Ledger(), settings=CHANGE)
    assert not record.blessed
    assert record.outcomes[0].verdict is Verdict.INVALID


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_run_cannot_hold_a_figure_that_is_not_finite(value):
    with pytest.raises(pydantic.ValidationError):
        run("a", step_time_seconds=value)


def test_a_rule_that_older_runs_lack_is_not_checked_but_the_others_are():
    ledger = ledger_of(run("a", step_time_seconds=1.0))
    settings = GateConfig(changes={"step_time_seconds": 0.25, "train_loss": 0.1})
    candidate = run("b", step_time_seconds=1.0, train_loss=0.5)
    record = evaluate(candidate, ledger=ledger, settings=settings)
    assert record.blessed
    assert [outcome.verdict for outcome in record.outcomes] == [Verdict.PASS, Verdict.NOT_CHECKED]
    assert record.headline.startswith("Blessed: 1 of 2 rules checked")


def test_a_gate_without_rules_blesses_nothing():
    record = evaluate(run("a", step_time_seconds=1.0), ledger=Ledger(), settings=NONE)
    assert not record.blessed
    assert "no rule" in record.headline


def test_one_refusal_outweighs_any_number_of_passes():
    settings = GateConfig(
        limits={"train_loss": Limit(max=1.0), "step_time_seconds": Limit(max=0.5)}, changes={}
    )
    candidate = run("a", train_loss=0.1, step_time_seconds=0.6)
    record = evaluate(candidate, ledger=Ledger(), settings=settings)
    assert not record.blessed
    assert record.figures()["failed_rule_count"] == 1.0
    assert record.headline.startswith("Refused by 1 of 2 rules. step_time_seconds")


def test_the_record_survives_the_disk(tmp_path):
    ledger = ledger_of(run("a", step_time_seconds=1.0))
    record = evaluate(run("b", step_time_seconds=1.3), ledger=ledger, settings=CHANGE)
    record.write(tmp_path / "evaluation.json")
    assert GateRecord.read(tmp_path / "evaluation.json") == record
