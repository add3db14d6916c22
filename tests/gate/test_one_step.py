"""Figures of one step, the time, the rate and shares: they are compared with the same runs."""

import numpy as np
import pytest
from gate_runs import blessed_by_a_person, only, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.settings.gate import GateSettings

STEP, RATE, MFU = "step_time_seconds", "examples_per_second", "mfu_ratio"
SETTINGS = only(**{STEP: {"margin": 0.03}, RATE: {"margin": 0.03}, MFU: {"margin": 0.03}})


def of(steps, rates, *, mfus=None):
    """Returns a ledger with a run for each pair, the oldest first."""
    entries = []
    for index, (step, rate) in enumerate(zip(steps, rates, strict=True)):
        figures = {STEP: step, RATE: rate}
        if mfus and mfus[index] is not None:
            figures[MFU] = mfus[index]
        entries.append(run(f"r{index}", minute=index, **figures))
    return Ledger(entries=tuple(entries))


def baselines(ledger, **figures):
    """Returns what each figure of a new run is compared with."""
    decision = evaluate(run("new", minute=90, **figures), ledger=ledger, settings=SETTINGS)
    compared = [item for item in decision.outcomes if item.kind == "change"]
    return {item.metric: item.baseline for item in compared if item.metric in figures}


@pytest.mark.parametrize(
    ("steps", "rates", "since"),
    [
        # The rate is too loud to show what the median shows, or the other way round.
        ([1.0, 1.0, 0.8, 0.8], [80.0, 120.0, 115.0, 125.0], slice(2, 4)),
        ([1.0, 1.0, 1.0, 1.0], [50.0, 50.0, 100.0, 100.0], slice(2, 4)),
        # Each shows a change of its own: the runs after both count.
        ([1.0, 0.5, 0.5, 0.5, 0.5], [100.0, 100.0, 100.0, 200.0, 200.0], slice(3, 5)),
        # By the median the new run is nearer to those before the last one, by the rate to that.
        ([1.0, 1.0, 1.0, 0.5], [100.0, 100.0, 100.0, 200.0], slice(0, 3)),
        ([1.0, 1.0, 1.0, 1.0], [100.0, 101.0, 99.0, 100.0], slice(0, 4)),
    ],
)
def test_both_are_compared_with_the_runs_since_the_last_change_of_either(steps, rates, since):
    found = baselines(of(steps, rates), **{STEP: 0.9 * max(steps), RATE: max(rates)})
    expected = {STEP: np.mean(steps[since]), RATE: np.mean(rates[since])}
    assert found == pytest.approx(expected)


def test_a_figure_that_those_runs_lack_is_compared_with_the_runs_that_have_it():
    ledger = of([1.0, 1.0, 0.5], [100.0, 100.0, 200.0], mfus=[0.03, 0.0302, None])
    found = baselines(ledger, **{STEP: 0.5, RATE: 200.0, MFU: 0.05})
    assert found == pytest.approx({STEP: 0.5, RATE: 200.0, MFU: 0.0301})


# Step time in milliseconds, what stalls add to the mean, and what replicas wait.
STRATEGIES = {
    "one_device": (1.0, 0.01, None),
    "MirroredStrategy": (1.6, 0.02, 0.2),
    "MultiWorkerMirroredStrategy": (4.0, 0.6, 0.45),
}
ALONE, MIRRORED, WORKERS = STRATEGIES


def trained(random, strategy, *, minute, faster=1.0):
    milliseconds, stalls, waits = STRATEGIES[strategy]
    step = 1e-3 * milliseconds * faster * (1 + 0.01 * random.normal())
    mean = step * (1 + stalls) * (1 + 0.02 * abs(random.normal()))
    shares = {}
    if waits:
        share = waits * (1 + 0.1 * random.uniform(-1, 1)) / faster
        shares = {"communication_share_ratio": min(1.0, share)}
    return run(
        f"run {minute}",
        minute=minute,
        environment={"device_kind": "CPU", "strategy": strategy, "global_batch_size": "64"},
        step_time_error_ratio=0.01,
        training_memory_bytes=5e8,
        train_step_count=2000.0,
        train_loss=0.5 * (1 + 0.005 * random.normal()),
        trace_count=1.0,
        **{STEP: step, RATE: 64 / mean},
        **shares,
    )


@pytest.mark.parametrize(
    "history",
    [
        [(ALONE, 1.0)] * 3 + [(MIRRORED, 1.0)] * 2 + [(WORKERS, 1.0)] * 2 + [(ALONE, 1.0)] * 2,
        # The first run under each strategy has no plan yet.
        [(ALONE, 2.0), (ALONE, 1.0), (WORKERS, 2.0), (WORKERS, 1.0), (WORKERS, 1.0),
         (MIRRORED, 1.5), (MIRRORED, 1.0), (ALONE, 1.0), (WORKERS, 1.0), (ALONE, 1.0)],
    ],
    ids=["as fast from the first run on", "with a plan from the second run on"],
)  # fmt: skip
def test_whoever_tries_strategies_may_go_back(history):
    judged = refused = 0
    for seed in range(20):
        random, ledger = np.random.default_rng(seed), Ledger()
        for minute, (strategy, faster) in enumerate(history):
            candidate = trained(random, strategy, minute=minute, faster=faster)
            decision = evaluate(candidate, ledger=ledger, settings=GateSettings())
            if any(item.is_far_worse for item in decision.outcomes):
                # As the first run under a strategy that is so much slower has to be.
                ledger = blessed_by_a_person(ledger, candidate)
                continue
            judged, refused = judged + 1, refused + (not decision.blessed)
            if decision.blessed:
                ledger = ledger.append(candidate, keep=100)
    assert refused / judged <= GateSettings().false_alarm_rate
