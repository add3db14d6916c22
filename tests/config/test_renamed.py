"""Settings, metrics and verdicts of earlier versions are read under their names of today."""

import logging

import pytest

from tests.test_names import setting_exists
from tfx_perf.config import PerfConfig, base
from tfx_perf.core import errors
from tfx_perf.gate.decision import RuleResult, Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.training.speedups.plan import TrainingPlan


def test_earlier_settings_are_read_and_say_their_new_names_once(caplog):
    base._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        settings = PerfConfig.from_dict({
            "schedule": {"planned_runs": 3},
            "training": {"steps_per_call": [7], "recompute": "auto",
                         "excluded_speedups": ["xla_call"]},
            "gate": {"rules": {
                "step_time_seconds": {"margin": 0.1, "budget": 0.2},
                "input_fed_ratio": {"min": 0.5},
            }},
        })  # fmt: skip
    assert settings.schedule.expected_runs == 3
    assert settings.training.steps_per_execution == (7,)
    assert settings.training.gradient_checkpointing == "auto"
    rule = settings.gate.rules["step_time_seconds"]
    assert (rule.tolerance, rule.max_regression) == (0.1, 0.2)
    assert settings.gate.rules["input_efficiency_ratio"].min == 0.5
    assert len(caplog.messages) == 6
    PerfConfig.from_dict({"schedule": {"planned_runs": 3}})
    assert len(caplog.messages) == 6
    assert settings.training.excluded_speedups == ("xla_loop",)
    expected = "The setting gate.rules.METRIC.margin is called tolerance now."
    assert expected in caplog.messages


def test_both_names_are_refused():
    with pytest.raises(errors.UserError, match="training.tuning_seconds alone. Received: trial_"):
        PerfConfig.from_dict({"training": {"tuning_seconds": 1, "trial_budget_seconds": 1}})


@pytest.mark.parametrize("earlier", base.RENAMED)
def test_each_new_name_is_a_setting_and_the_earlier_one_is_none(earlier):
    section, _, name = earlier.replace("*", "step_time_seconds").rpartition(".")
    if not section.startswith("gate.rules"):  # below a mapping every key may be
        assert not setting_exists(f"{section}.{name}")
    assert setting_exists(f"{section}.{base.RENAMED[earlier]}")


def test_earlier_plans_figures_and_verdicts_are_read():
    plan = TrainingPlan.model_validate({"steps_per_call": 5, "xla_call": True})
    assert plan == TrainingPlan(steps_per_execution=5, xla_loop=True)
    assert Verdict("not comparable") is Verdict.INCOMPARABLE
    result = {"metric": "steps_per_call", "kind": "change", "verdict": "pass", "reason": ""}
    assert RuleResult.model_validate(result).metric == "steps_per_execution"
    entry = {
        "run_id": "a", "time": "2026-01-01T00:00:00Z", "environment": {},
        "figures": {"host_share_ratio": 0.5},
    }  # fmt: skip
    ledger = Ledger.model_validate({"entries": [entry]})
    assert ledger.entries[0].figures == {"python_overhead_ratio": 0.5}
