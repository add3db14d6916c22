"""The share of waiting for input, where the step itself changed."""

import pytest
from gate_runs import only, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate

SETTINGS = only(step_time_seconds={"margin": 0.25}, input_wait_ratio={"margin": 0.1, "scale": 0.2})
BEFORE = {"step_time_seconds": 1.5e-3, "input_wait_ratio": 0.2}  # a wait of 0.3 ms


def wait_of(*, step_time_seconds, input_wait_ratio, settings=SETTINGS, earlier=1):
    """Returns the outcomes of the share for a run after some like `BEFORE`."""
    ledger = Ledger(entries=tuple(run(f"r{i}", minute=i, **BEFORE) for i in range(earlier)))
    figures = {"step_time_seconds": step_time_seconds, "input_wait_ratio": input_wait_ratio}
    decision = evaluate(run("new", minute=60, **figures), ledger=ledger, settings=settings)
    return [item for item in decision.outcomes if item.metric == "input_wait_ratio"]


@pytest.mark.parametrize("earlier", [1, 8])  # with eight there is an anchor, too
def test_the_same_wait_in_a_shorter_step_passes(earlier):
    found = wait_of(step_time_seconds=0.5e-3, input_wait_ratio=0.55, earlier=earlier)
    assert {outcome.verdict for outcome in found} == {Verdict.PASS}
    assert "55.0 % of a step of 500 µs" in found[0].reason
    assert "18.3 % of the baseline's, 1.50 ms" in found[0].reason


@pytest.mark.parametrize(
    ("step_time_seconds", "input_wait_ratio"),
    [
        (0.8e-3, 0.8),  # a wait of 0.64 ms: longer, although the step is shorter
        (1.5e-3, 0.5),
        (3.0e-3, 0.5),
    ],
)
def test_a_longer_wait_is_refused(step_time_seconds, input_wait_ratio):
    found = wait_of(step_time_seconds=step_time_seconds, input_wait_ratio=input_wait_ratio)
    assert [outcome.verdict for outcome in found] == [Verdict.REGRESSION]


def test_a_limit_of_the_user_holds_whatever_the_step_takes():
    settings = only(step_time_seconds={"margin": 0.25}, input_wait_ratio={"max": 0.5})
    (found,) = wait_of(step_time_seconds=0.5e-3, input_wait_ratio=0.55, settings=settings)
    assert found.verdict is Verdict.LIMIT
