"""The gate settings written for users: by `copying`, for `addon` too, and by `demo`."""

import numpy as np
import pytest
import yaml
from gate_runs import run

from tfx_perf.cli import demo
from tfx_perf.config import PerfConfig
from tfx_perf.config import gate as gate_settings
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.templates import copying

_NOISE = 0.01


@pytest.fixture(params=[copying.PERF, copying.PERF_ADDON, "demo"])
def settings(request):
    """The gate settings that a user is given."""
    if request.param == "demo":
        return demo._settings(None).gate
    text = copying.contents(request.param, pipeline_name="x")["perf.yaml"]
    return PerfConfig.from_dict(yaml.safe_load(text)).gate


def _night(number, step_seconds, random):
    """Returns a healthy run of that step time plus the machine's noise."""
    seconds = step_seconds * (1 + _NOISE * random.normal())
    return run(
        f"night{number}", minute=number, step_time_seconds=seconds,
        examples_per_second=64 / seconds, training_memory_bytes=1e8, train_loss=0.5,
        validation_loss=0.5, train_step_count=1000.0, trace_count=1.0, oom_count=0.0,
    )  # fmt: skip


@pytest.fixture
def history(settings):
    """The ledger after eight healthy nights, all of them blessed."""
    ledger, random = Ledger(), np.random.default_rng(1)
    for number in range(8):
        healthy = _night(number, 1e-3, random)
        decision = evaluate(healthy, ledger=ledger, settings=settings)
        assert decision.blessed, decision.headline
        ledger = ledger.append(healthy, keep=settings.ledger_size)
    return ledger


@pytest.mark.parametrize("seed", range(5))
def test_steps_that_take_a_fifth_longer_are_refused(settings, history, seed):
    slow = _night(8, 1.2e-3, np.random.default_rng(seed))
    assert not evaluate(slow, ledger=history, settings=settings).blessed


def test_small_slowdowns_are_refused_before_they_reach_a_third(settings, history):
    ledger, random = history, np.random.default_rng(2)
    for number, slower in enumerate(np.arange(0.005, 0.355, 0.005)):
        night = _night(8 + number, 1e-3 * (1 + slower), random)
        if evaluate(night, ledger=ledger, settings=settings).blessed:
            ledger = ledger.append(night, keep=settings.ledger_size)
    slowest = max(entry.figures["step_time_seconds"] for entry in ledger.entries)
    assert slowest < 1.2e-3


def test_no_rule_is_looser_than_the_default_one(settings):
    for key, default in gate_settings.DEFAULT_RULES.items():
        found = settings.rules_for(()).get(key)
        if found is not None:
            assert found.largest_change <= default.largest_change
            assert found.expected_std == default.expected_std
            assert found.min_baseline == default.min_baseline
    lost = gate_settings.DEFAULT_RULES.keys() - settings.rules_for(()).keys()
    assert lost == {"cost_per_million_examples"}  # it needs a price
