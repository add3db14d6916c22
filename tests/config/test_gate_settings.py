"""The rules that are accepted, refused, and that hold by default.

The default rules of figures that follow from the step time are loosened with it
(`Rule.loosened`).
"""

import pydantic
import pytest

from tfx_perf.config import PerfConfig
from tfx_perf.config import gate as gate_settings
from tfx_perf.config.gate import GateSettings
from tfx_perf.config.rule import Rule
from tfx_perf.core import errors, metrics


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"speed": {"max": 1}}, "a metric of docs/metrics.md, not 'speed'"),
        ({"step_time_second": {"max": 1}}, "Did you mean step_time_seconds?"),
        ({"mfu_ratio": {}}, "a rule with min, max or tolerance"),
        ({"setup_time_seconds": {"optional": True}}, "with min, max or tolerance"),
        ({"mfu_ratio": {"min": 0.9, "max": 0.1}}, "min not above max, so that"),
        ({"mfu_ratio": {"max": 1.0}}, "never above 1"),
        ({"mfu_ratio": {"min": 0.0}}, "never below 0"),
        ({"step_time_seconds": {"min": -1}}, "never below 0"),
        ({"steps_per_execution": {"tolerance": 0.1}}, "no better direction and cannot regress"),
        ({"examples_per_second": {"tolerance": 1.0}}, "cannot fall by more than 100%"),
        ({"step_time_seconds": {"tolerance": 0}}, "a tolerance above 0 for"),
        ({"step_time_seconds": {"tolerance": 25}}, "25 means 2,500%"),
        ({"train_loss": {"tolerance": 0.1, "max_regression": 30}}, "a max_regression below 10"),
        ({"step_time_seconds": {"tolerance": 0.1, "max_regression": 0.05}}, "that is not below"),
        ({"setup_time_seconds": {"max": 1, "expected_std": 0.1}}, "with a tolerance, to which"),
        ({"memory_leak": {"max_regression": 0.1}}, "with a tolerance, to which"),
        ({"step_time_seconds": {"tolerance": 0.1, "direction": "higher"}}, "direction"),
        ({"evaluation/example_count": {"tolerance": 0.1}}, "Give the rule a direction."),
        ({"evaluation/": {"min": 1}}, "evaluation/"),
        ({"parameter_count": None}, "has no default one"),
        ({"cost_per_million_examples": {"max": 1}}, "Set gate.price_per_hour."),
        ({"mfu_ratio": {"mni": 1}}, "rules.mfu_ratio.mni=1"),
        # The wrong rule is named, not all.
        ({"train_loss": {"max": 1}, "mfu_ratio": {"max": 2}}, "gate.rules.mfu_ratio={'max': 2}."),
        ({"cost_per_million_examples": {"max": 1}}, "rules.cost_per_million_examples={'max': 1}."),
    ],
)
def test_a_rule_that_can_never_fire_or_means_nothing_is_an_error(rules, words):
    with pytest.raises(errors.UserError) as caught:
        PerfConfig.from_dict({"gate": {"rules": rules}})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "rules",
    [
        {"mfu_ratio": {"max": 0.99, "min": 0.01}},
        {"train_loss": {"min": -5.0}},  # a log-likelihood may be negative
        {"trace_count": {"tolerance": 0, "max_regression": 1}},
        {"step_time_seconds": {"tolerance": 5.0}},  # six times as slow is possible
        {"evaluation/example_count": {"tolerance": 0.1, "direction": "higher"}},
        {"evaluation/loss": {"tolerance": 0.1, "direction": "higher"}},  # the user knows better
        {"step_time_seconds": None},
        {"evaluation/auc": None},
    ],
)
def test_a_rule_that_can_fire_is_accepted_and_survives_json(rules):
    settings = PerfConfig.from_dict({"gate": {"rules": rules}})
    assert PerfConfig.from_json(settings.to_json("gate")).gate == settings.gate


def test_a_rule_adds_to_the_default_null_removes_it_and_the_others_stay():
    changed = GateSettings(rules={"step_time_seconds": Rule(max=1), "train_loss": None})
    rules = changed.rules_for(())
    assert rules["step_time_seconds"] == Rule(max=1, tolerance=0.03)
    assert "train_loss" not in rules
    assert rules["training_memory_bytes"] == gate_settings.DEFAULT_RULES["training_memory_bytes"]
    assert GateSettings(use_defaults=False, rules={"train_loss": Rule(max=1)}).rules_for(
        ("auc",)
    ) == {"train_loss": Rule(max=1)}


def test_a_looser_step_time_loosens_the_figures_that_follow_from_it():
    looser = Rule(tolerance=0.5, expected_std=0.1)
    rules = GateSettings(rules={"step_time_seconds": looser}, price_per_hour=1.0).rules_for(())
    rate, cost = rules["examples_per_second"], rules["cost_per_million_examples"]
    # of 1.5 and 3 times
    assert (rate.tolerance, rate.max_regression) == pytest.approx((1 / 3, 2 / 3))
    assert (cost.tolerance, cost.max_regression) == pytest.approx((0.5, 2.0))
    assert (rate.expected_std, rate.optional, rate.advisory) == (0.1, True, False)
    for key, rule in rules.items():
        rule.check_for(key)
    others = set(rules) - set(metrics.STEP_TIME_EXPONENTS)
    assert {key: rules[key] for key in others} == {
        key: rule for key, rule in gate_settings.DEFAULT_RULES.items() if key in others
    }
    advisory = Rule(tolerance=0.03, advisory=True)
    assert GateSettings(rules={"step_time_seconds": advisory}).rules_for(())[
        "examples_per_second"
    ].advisory


@pytest.mark.parametrize(
    "rules",
    [
        {"step_time_seconds": Rule(tolerance=0.01)},
        {"step_time_seconds": Rule(max=1.0)},
        {"step_time_seconds": None},
        {"examples_per_second": Rule(tolerance=0.5)},
    ],
)
def test_other_rules_loosen_nothing_else(rules):
    found = GateSettings(rules=rules).rules_for(())
    for key in {"step_time_seconds", "examples_per_second", "mfu_ratio"} - rules.keys():
        rule, default = found[key], gate_settings.DEFAULT_RULES[key]
        assert (rule.tolerance, rule.largest_change) == (default.tolerance, default.largest_change)
        assert rule.advisory == default.advisory


def test_a_rule_for_a_figure_that_follows_is_not_loosened():
    own = Rule(tolerance=0.05)
    given = {"step_time_seconds": Rule(tolerance=0.5), "examples_per_second": own}
    assert GateSettings(rules=given).rules_for(())["examples_per_second"].tolerance == own.tolerance
    alone = GateSettings(use_defaults=False, rules={"step_time_seconds": Rule(tolerance=0.5)})
    assert set(alone.rules_for(())) == {"step_time_seconds"}


def test_cost_is_ruled_only_if_the_price_is_known():
    key = "cost_per_million_examples"
    assert key not in GateSettings().rules_for(())
    assert key in GateSettings(price_per_hour=3.0).rules_for(())


def test_quality_has_default_rules_if_its_name_shows_which_way_is_better():
    rules = GateSettings().rules_for(("auc", "example_count", "mean_squared_error"))
    assert {key for key in rules if metrics.is_evaluation(key)} == {
        "evaluation/auc", "evaluation/mean_squared_error",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "own", "expected"),
    [
        # A limit removes neither the tolerance nor the permission to lack the figure.
        ("input_wait_ratio", {"max": 0.5}, {"max": 0.5, "tolerance": 0.1, "min_baseline": 0.2,
                                            "optional": True}),
        ("input_wait_ratio", {"max": 0.5, "tolerance": None}, {"max": 0.5, "optional": True}),
        ("input_wait_ratio", {"max": 0.5, "optional": False}, {"max": 0.5, "tolerance": 0.1,
                                                               "min_baseline": 0.2}),
        ("peak_memory_share_ratio", {"tolerance": 0.1}, {"tolerance": 0.1, "max": 0.85,
                                                      "optional": True}),
        # a max_regression belongs to its tolerance.
        ("trace_count", {"tolerance": 0.5}, {"tolerance": 0.5, "optional": True}),
        # A rule on a figure that the default only reports does not refuse either.
        ("mfu_ratio", {"min": 0.3}, {"min": 0.3, "optional": True}),
    ],
)  # fmt: skip
def test_a_rule_overrides_only_the_fields_it_names(key, own, expected):
    found = GateSettings(rules={key: Rule(**own)}).rules_for(())[key]
    assert found == Rule(**expected)
    text = PerfConfig.from_dict({"gate": {"rules": {key: own}}}).to_json("gate")
    assert PerfConfig.from_json(text).gate.rules_for(())[key] == found


def test_a_rule_may_say_only_what_a_default_one_does_not():
    settings = GateSettings(
        rules={
            "step_time_seconds": {"max_regression": 0.2},
            "train_loss": {"optional": True},
            "memory_leak": {"advisory": True},
            "mfu_ratio": {"expected_std": 0.1},
        }
    )
    rules = settings.rules_for(())
    rule = rules["step_time_seconds"]
    assert (rule.tolerance, rule.max_regression) == (0.03, 0.2)
    assert rules["memory_leak"].max == 0
    assert rules["memory_leak"].advisory
    assert rules["mfu_ratio"].advisory  # like the default rule
    with pytest.raises(pydantic.ValidationError, match="with min, max or tolerance"):
        GateSettings(use_defaults=False, rules={"train_loss": {"optional": True}})
