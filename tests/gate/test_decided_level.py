"""A change for the worse that a person has blessed."""

import datetime

import pytest
from gate_runs import only, run

from tfx_perf.gate.act import Act
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate

RULES = only(
    step_time_seconds={"margin": 0.03},
    examples_per_second={"margin": 0.03, "optional": True},
    peak_rss_bytes={"margin": 0.05, "optional": True},
)


def at(name, speed, *, minute=0, memory=1e9):
    """Returns a run whose steps are so many times as long as usual."""
    return run(
        name, minute=minute, step_time_seconds=speed, examples_per_second=100 / speed,
        peak_rss_bytes=memory,
    )  # fmt: skip


def blessed_by_hand(entry):
    """Returns the ledger that a person's decision adds."""
    later = entry.time + datetime.timedelta(seconds=1)
    act = Act(kind="bless", run_id=entry.run_id, who="me", time=later, reason="by design")
    return Ledger(entries=(entry,), acts=(act,))


def refusals(candidate, ledger):
    """Returns what refuses a run, by metric."""
    decision = evaluate(candidate, ledger=ledger, settings=RULES)
    return {item.metric: item.verdict for item in decision.outcomes if item.refuses}


@pytest.mark.parametrize("count", [1, 2, 4, 8, 12])
@pytest.mark.parametrize("slower", [1.3, 2.0, 15.0])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_the_runs_after_it_are_compared_with_it_alone(count, slower, spread):
    before = [at(f"r{i}", 1.0 + spread * (i % 2), minute=i) for i in range(count)]
    known = Ledger(entries=tuple(before))
    decided = at("decided", slower * (1 + spread), minute=50)
    ledger = known.merge(blessed_by_hand(decided))
    again = at("again", 1.01 * slower * (1 + spread), minute=60)
    assert not refusals(again, ledger)
    worse = at("worse", 1.5 * slower * (1 + spread), minute=60)
    assert refusals(worse, ledger)["step_time_seconds"] is Verdict.REGRESSION


def test_the_anchor_is_sought_since_then():
    before = tuple(at(f"r{i}", 1.0, minute=i) for i in range(8))
    ledger = Ledger(entries=before).merge(blessed_by_hand(at("decided", 2.0, minute=50)))
    after = tuple(at(f"s{i}", 2.0, minute=60 + i) for i in range(8))
    ledger = ledger.merge(Ledger(entries=after))
    assert not refusals(at("again", 2.01, minute=90), ledger)


def test_of_other_figures_the_runs_before_still_count():
    before = tuple(at(f"r{i}", 1.0, minute=i) for i in range(8))
    ledger = Ledger(entries=before).merge(blessed_by_hand(at("decided", 2.0, minute=50)))
    larger = at("larger", 2.0, minute=60, memory=1.5e9)
    assert set(refusals(larger, ledger)) == {"peak_rss_bytes"}
    decision = evaluate(larger, ledger=ledger, settings=RULES)
    (memory,) = [item for item in decision.outcomes if item.refuses and item.kind == "change"]
    assert memory.detectable < 0.06  # known from nine runs


def test_who_takes_the_decision_back_has_the_level_before():
    before = tuple(at(f"r{i}", 1.0, minute=i) for i in range(8))
    decided = at("decided", 2.0, minute=50)
    taken_back = Act(
        kind="unbless", run_id="decided", who="me", reason="too dear",
        time=decided.time + datetime.timedelta(seconds=9),
    )  # fmt: skip
    ledger = Ledger(entries=before).merge(blessed_by_hand(decided), Ledger(acts=(taken_back,)))
    assert "step_time_seconds" in refusals(at("again", 2.0, minute=60), ledger)
    assert not refusals(at("healthy", 1.0, minute=60), ledger)
