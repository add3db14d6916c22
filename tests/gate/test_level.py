"""A change of level is no noise."""

import numpy as np
import pytest
from gate_runs import ledger_of, noisy, only, run

from tfx_perf.gate import level
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate
from tfx_perf.settings.gate import GateSettings

KEY = "step_time_seconds"


@pytest.mark.parametrize(
    ("figures", "since"),
    [
        ([1.0], 0),
        ([1.12, 0.258], 1),
        ([1.0, 1.0, 1.0, 0.5, 0.5], 3),
        ([1.0, 1.01, 0.99, 1.3, 1.29, 1.31], 3),  # a slowdown that somebody has blessed
        ([1.0, 0.99, 1.5, 1.01, 1.0, 0.98], 0),  # one run that is far off
        ([1.0, 0.99, 1.01, 1.0, 0.9], 0),  # one run alone, that may be luck
        ([3.0, 3.0, 2.0, 2.0, 1.0, 1.0], 4),
        ([1.0, 1.2, 0.8, 1.1, 0.9, 1.2], 0),  # noise
    ],
)
def test_runs_count_since_the_last_change_of_level(figures, since):
    assert level.latest(figures, noise=0.01) == figures[since:]


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("sd", [0.005, 0.02, 0.05])
def test_noise_is_no_change_of_level(sd, correlation):
    generator, cut = np.random.default_rng(1), 0
    for _ in range(500):
        scatter = generator.normal(size=8) * sd * np.sqrt(1 - correlation**2)
        for i in range(1, 8):
            scatter[i] += correlation * scatter[i - 1]
        figures = 1 + scatter
        cut += len(level.latest(figures, noise=0.01)) < len(figures)
    assert cut / 500 <= 0.02


def trained(name, minute, step, loss):
    """Returns a run as the defaults judge it."""
    return run(
        name, minute=minute, step_time_seconds=step, examples_per_second=40 / step,
        training_memory_bytes=1e9, train_loss=loss, input_wait_ratio=0.01,
    )  # fmt: skip


def test_an_improvement_does_not_lock_the_gate():
    ledger = Ledger()
    steps = [1.12e-3, 0.258e-3, 0.258e-3, 0.262e-3, 0.255e-3, 0.26e-3]
    losses = [0.6022, 0.6022, 0.6024, 0.6021, 0.6023, 0.6022]
    for minute, figures in enumerate(zip(steps, losses, strict=True)):
        candidate = trained(f"r{minute}", minute, *figures)
        decision = evaluate(candidate, ledger=ledger, settings=GateSettings())
        assert decision.blessed, decision.headline
        ledger = ledger.append(candidate, keep=100)
    lost = evaluate(trained("new", 9, 1.12e-3, 0.6022), ledger=ledger, settings=GateSettings())
    assert not lost.blessed
    assert all(item.lowest is None or item.lowest >= 0 for item in lost.outcomes)


def test_a_run_no_worse_than_every_other_is_never_inconclusive():
    loud = ledger_of(KEY, noisy(8, sd=0.3, seed=2))
    best = min(entry.figures[KEY] for entry in loud.entries)
    settings = GateSettings(rules={KEY: {"margin": 0.03}}, use_defaults=False)
    for value in (best, 0.9 * best):
        decision = evaluate(run("new", **{KEY: value}), ledger=loud, settings=settings)
        assert decision.outcomes[0].verdict is Verdict.PASS


def test_a_loss_that_varies_does_not_make_times_inconclusive():
    losses = [0.5, 0.8, 0.3, 0.9, 0.4, 0.7]
    entries = [
        run(f"r{i}", minute=i, step_time_seconds=1.0, training_memory_bytes=1e9, train_loss=loss)
        for i, loss in enumerate(losses)
    ]
    settings = GateSettings(rules={"train_loss": {"margin": 0.05, "advisory": True}})
    decision = evaluate(
        run("new", step_time_seconds=1.0, training_memory_bytes=1e9, train_loss=0.6),
        ledger=Ledger(entries=tuple(entries)),
        settings=settings,
    )
    assert decision.blessed, decision.headline
    assert decision.host_factor == 1.0


@pytest.mark.parametrize(("key", "lucky"), [("step_time_seconds", 0.7), ("train_loss", 0.5)])
def test_one_lucky_run_does_not_refuse_all_that_follow(key, lucky):
    usual = noisy(15, sd=0.01, seed=1)
    ledger = ledger_of(key, [*usual, lucky])
    settings = only(**{key: {"margin": 0.05}})
    assert evaluate(run("new", minute=60, **{key: 1.0}), ledger=ledger, settings=settings).blessed
    # A slower run near the better one has lost part of it, and two of them are a level.
    for values, value in (([*usual, lucky], lucky + 0.1), ([*usual, lucky, lucky], 1.0)):
        slower = run("new", minute=60, **{key: value})
        decision = evaluate(slower, ledger=ledger_of(key, values), settings=settings)
        assert not decision.blessed
