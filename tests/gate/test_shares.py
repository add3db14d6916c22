"""Shares of a step, where the step itself changed."""

import pytest
from gate_runs import only, run

from tfx_perf import metrics
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate


def share_of(*, step_time_seconds, share, key="input_wait_ratio", rule=None, earlier=1):
    """Returns the outcomes of the share for a run after some with a wait of 0.3 ms."""
    before = {"step_time_seconds": 1.5e-3, key: 0.2}
    ledger = Ledger(entries=tuple(run(f"r{i}", minute=i, **before) for i in range(earlier)))
    candidate = run("new", minute=60, **{"step_time_seconds": step_time_seconds, key: share})
    rules = {"step_time_seconds": {"margin": 0.25}, key: rule or {"margin": 0.1, "scale": 0.2}}
    decision = evaluate(candidate, ledger=ledger, settings=only(**rules))
    return [item for item in decision.outcomes if item.metric == key]


@pytest.mark.parametrize("earlier", [1, 8])  # with eight there is an anchor, too
@pytest.mark.parametrize("key", metrics.SHARES_OF_A_STEP)
def test_the_same_wait_in_a_shorter_step_passes(key, earlier):
    found = share_of(step_time_seconds=0.5e-3, share=0.55, key=key, earlier=earlier)
    assert {outcome.verdict for outcome in found} == {Verdict.PASS}
    assert "55.0 % of a step of 500 µs" in found[0].reason
    assert "18.3 % of the baseline's, 1.50 ms" in found[0].reason


@pytest.mark.parametrize(
    ("step_time_seconds", "share"),
    [
        (0.8e-3, 0.8),  # a wait of 0.64 ms: longer, although the step is shorter
        (1.5e-3, 0.5),
        (3.0e-3, 0.5),
    ],
)
def test_a_longer_wait_is_refused(step_time_seconds, share):
    found = share_of(step_time_seconds=step_time_seconds, share=share)
    assert [outcome.verdict for outcome in found] == [Verdict.REGRESSION]


def test_a_limit_of_the_user_holds_whatever_the_step_takes():
    (found,) = share_of(step_time_seconds=0.5e-3, share=0.55, rule={"max": 0.5})
    assert found.verdict is Verdict.LIMIT
