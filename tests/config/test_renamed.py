"""Records of earlier versions are read under their names of today; settings say these names."""

import pytest

from tests.test_names import setting_exists
from tfx_perf.config import PerfConfig, base
from tfx_perf.core import errors, metrics
from tfx_perf.gate.decision import RuleResult, Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.training.speedups.plan import TrainingPlan


@pytest.mark.parametrize("earlier", base.RENAMED)
def test_an_earlier_name_is_refused_and_says_the_new_one(earlier):
    *sections, name = earlier.replace("*", "step_time_seconds").split(".")
    values = {name: 0.5}
    for section in reversed(sections):
        values = {section: values}
    with pytest.raises(errors.UserError, match=f"It is called {base.RENAMED[earlier]} now."):
        PerfConfig.from_dict(values)
    assert setting_exists(".".join([*sections, base.RENAMED[earlier]]))


@pytest.mark.parametrize("earlier", metrics.RENAMED)
def test_a_rule_for_an_earlier_metric_is_refused_and_says_the_new_key(earlier):
    with pytest.raises(errors.UserError, match=f"Did you mean {metrics.RENAMED[earlier]}?"):
        PerfConfig.from_dict({"gate": {"rules": {earlier: {"max": 0.5}}}})


def test_an_earlier_speedup_is_refused_and_says_the_new_name():
    with pytest.raises(errors.UserError, match="Did you mean xla_loop?"):
        PerfConfig.from_dict({"training": {"excluded_speedups": ["xla_call"]}})


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
