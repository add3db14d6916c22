"""The effect on a refusal of measuring in turns."""

import pytest
from gate_runs import ledger_of, only, run

from tfx_perf.core.statistics import Interval
from tfx_perf.gate import messages
from tfx_perf.gate.decision import AbRerun, Verdict, is_clear
from tfx_perf.gate.verdict import evaluate

RULE = {"tolerance": 0.03, "max_regression": 0.1}
SLOW, FAST = "step_time_seconds", "examples_per_second"


def judged(key, ratio, *, value=1.0, samples=(0.5, 1.5, 1.0), against="r2", **rule):
    """The decision on a run whose step took between low and high times as long in turns."""
    ab_rerun = None
    if ratio:
        low, high = ratio
        interval = Interval(value=(low + high) / 2, low=low, high=high)
        ab_rerun = AbRerun(against=against, ratio=interval)
    return evaluate(
        run("this", minute=9, **{key: value}),
        ledger=ledger_of(key, samples),
        settings=only(**{key: {**RULE, **rule}}),
        ab_rerun=ab_rerun,
    )


@pytest.mark.parametrize(
    ("key", "ratio", "verdict"),
    [
        (SLOW, (0.97, 1.02), Verdict.PASS),
        (SLOW, (1.01, 1.09), Verdict.PASS),  # within max_regression, wherever in the interval it is
        (SLOW, (1.04, 1.06), Verdict.REGRESSION),
        (SLOW, (1.01, 1.12), Verdict.INCONCLUSIVE),
        (FAST, (0.97, 1.02), Verdict.PASS),
        (FAST, (1.04, 1.06), Verdict.REGRESSION),
        (FAST, (0.80, 0.90), Verdict.PASS),
        (FAST, (1.01, 1.12), Verdict.INCONCLUSIVE),
    ],
)
def test_the_interval_decides(key, ratio, verdict):
    assert judged(key, None).verdict is Verdict.INCONCLUSIVE
    record = judged(key, ratio)
    assert record.verdict is verdict
    assert record.blessed == (verdict is Verdict.PASS)
    (outcome,) = record.outcomes
    assert "In turns with r2 on one host, a step took" in outcome.reason
    assert outcome.reason.endswith(" So it passes.") == record.blessed
    if record.blessed:  # a refusal's line shows the figures of the comparison of runs instead
        assert f"  {outcome.reason[outcome.reason.index('In turns') :]}" in messages.lines(record)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        ((0.97, 1.02), Verdict.PASS),  # the machine was slower, not the code
        ((0.97, 1.04), Verdict.REGRESSION),  # would pass if the verdict were inconclusive
        ((1.04, 1.06), Verdict.REGRESSION),
    ],
)
def test_a_regression_passes_only_within_the_margin(ratio, verdict):
    for key, value in ((SLOW, 2.0), (FAST, 0.5)):
        found = {"value": value, "samples": (1.0, 1.0, 1.0), "max_regression": 0.05}
        assert judged(key, None, **found).verdict is Verdict.REGRESSION
        assert judged(key, None, **found).may_be_settled
        assert judged(key, ratio, **found).verdict is verdict


def test_a_pass_is_never_overturned():
    assert judged(SLOW, (1.5, 1.6), samples=(1.0, 1.0, 1.0)).verdict is Verdict.PASS


def test_many_small_slowdowns_are_not_settled_by_the_last_one():
    """Unless the last blessed run itself is within max_regression of the reference run."""
    crept = (1.0,) * 5 + (1.05, 1.08, 1.10)
    rule = {"max_regression": 0.05, "expected_std": 1e-4}
    for factor, samples in ((1.0, crept), (2.0, (1.0,) * 8)):
        found = {"value": factor * 1.1, "samples": samples, **rule}
        alone = judged(SLOW, None, **found)
        assert "drift" in {outcome.kind for outcome in alone.outcomes if outcome.refuses}
        evaluation = judged(SLOW, (0.999, 1.001), against=f"r{len(samples) - 1}", **found)
        verdicts = {outcome.kind: outcome.verdict for outcome in evaluation.outcomes}
        assert verdicts["change"] is Verdict.PASS
        assert verdicts["drift"] is (Verdict.REGRESSION if factor == 1 else Verdict.PASS)


def test_a_time_does_not_settle_other_figures():
    record = judged("peak_memory_bytes", (0.97, 1.02))
    assert record.verdict is Verdict.INCONCLUSIVE
    assert not record.may_be_settled
    assert judged(SLOW, None).may_be_settled


@pytest.mark.parametrize(
    ("ratio", "clear"),
    [((0.9, 1.02), True), ((0.9, 1.04), False), ((1.04, 1.06), True), ((1.03, 1.04), False)],
)
def test_measuring_continues_until_the_ratio_is_on_one_side_of_the_margin(ratio, clear):
    low, high = ratio
    interval = Interval(value=(low + high) / 2, low=low, high=high)
    assert is_clear(interval, settings=only(**{SLOW: RULE})) is clear
