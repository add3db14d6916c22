"""Absolute limits, at and around their bounds."""

import pytest
from gate_runs import only, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate
from tfx_perf.report import gate_report


@pytest.mark.parametrize(
    ("value", "rule", "verdict"),
    [
        (1.0, {"max": 1.0}, Verdict.PASS),
        (1.0000001, {"max": 1.0}, Verdict.LIMIT),
        (1.0, {"min": 1.0}, Verdict.PASS),
        (0.9999999, {"min": 1.0}, Verdict.LIMIT),
        (1.5, {"min": 1.0, "max": 2.0}, Verdict.PASS),
        (None, {"max": 1.0}, Verdict.INVALID),
        (None, {"max": 1.0, "optional": True}, Verdict.NOT_CHECKED),
    ],
)
def test_limits_are_inclusive_and_need_a_value(value, rule, verdict):
    figures = {} if value is None else {"step_time_seconds": value}
    record = evaluate(run("a", **figures), ledger=Ledger(), settings=only(step_time_seconds=rule))
    (outcome,) = record.outcomes
    assert outcome.verdict is verdict
    assert record.blessed is (verdict in (Verdict.PASS, Verdict.NOT_CHECKED))
    assert outcome.refuses is not record.blessed


def test_a_yes_or_no_is_said_as_an_answer_and_not_as_an_amount():
    settings = only(memory_leak={"max": 0.0})
    for value, reason in (
        (0.0, "The answer is no, as it has to be."),
        (1.0, "The answer is yes, and has to be no."),
    ):
        record = evaluate(run("a", memory_leak=value), ledger=Ledger(), settings=settings)
        (outcome,) = record.outcomes
        assert outcome.reason == reason
        assert gate_report.allowed_in_words(outcome) == "no"
