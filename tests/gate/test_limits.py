"""Absolute limits, at and around their bounds."""

import pytest
from gate_runs import only, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate


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
