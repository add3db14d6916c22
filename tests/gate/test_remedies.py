"""What a refusal suggests lets the run pass."""

import re

import pytest
from gate_runs import ELSEWHERE, ledger_of, only, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.gate.verdict import evaluate
from tfx_perf.settings.gate import GateConfig
from tfx_perf.settings.rule import Rule

TIME, RATE = "step_time_seconds", "examples_per_second"


def refusal(key: str, value: float, *, ledger: Ledger, settings: GateConfig) -> Outcome | None:
    """Returns the only outcome that refuses, None if the run is blessed."""
    decision = evaluate(run("new", **{key: value}), ledger=ledger, settings=settings)
    found = [outcome for outcome in decision.outcomes if outcome.refuses]
    assert all((outcome in found) is (outcome.remedy is not None) for outcome in decision.outcomes)
    assert len(found) <= 1
    return found[0] if found else None


def followed(outcome: Outcome, rule: dict[str, float]) -> dict[str, float]:
    """Returns the rule as the remedy has it."""
    field = outcome.remedy.setting.removeprefix(f"gate.rules.{outcome.metric}.")
    number = re.search(r"([\d.e+-]+) (?:would let|lets)", outcome.remedy.suggestion)[1]
    changed = {**rule, field: float(number)}
    budget = re.search(r"with a budget of ([\d.e+-]+)", outcome.remedy.suggestion)
    return {**changed, "budget": float(budget[1])} if budget else changed


@pytest.mark.parametrize(
    ("key", "rule", "value", "verdict"),
    [
        (TIME, {"max": 1.0}, 1.2345, Verdict.LIMIT),
        (TIME, {"min": 0.5}, 0.01239, Verdict.LIMIT),
        ("mfu_ratio", {"min": 0.3}, 0.217, Verdict.LIMIT),
        (TIME, {"margin": 0.03}, 1.2345, Verdict.REGRESSION),
        (TIME, {"margin": 0.03, "budget": 0.1}, 1.31, Verdict.REGRESSION),
        (RATE, {"margin": 0.03}, 0.777, Verdict.REGRESSION),
        (TIME, {"margin": 0.02, "noise": 0.2}, 1.7, Verdict.REGRESSION),
        (TIME, {"margin": 0.03, "noise": 0.1}, 1.01, Verdict.INCONCLUSIVE),
        (RATE, {"margin": 0.03, "noise": 0.1}, 0.99, Verdict.INCONCLUSIVE),
    ],
)
def test_who_follows_it_gets_the_run_through(key, rule, value, verdict):
    ledger = ledger_of(key, [1.0, 1.0, 1.0])
    refused = refusal(key, value, ledger=ledger, settings=only(**{key: rule}))
    assert refused.verdict is verdict
    settings = only(**{key: followed(refused, rule)})
    assert refusal(key, value, ledger=ledger, settings=settings) is None


def test_a_change_since_the_anchor_is_a_matter_of_the_budget():
    rule = {"margin": 0.05, "budget": 0.06}
    ledger = ledger_of(TIME, [1.0] * 5 + [1.04] * 8)
    refused = refusal(TIME, 1.08, ledger=ledger, settings=only(**{TIME: rule}))
    assert refused.kind == "drift"
    assert refused.remedy.setting == "gate.rules.step_time_seconds.budget"
    settings = only(**{TIME: followed(refused, rule)})
    assert refusal(TIME, 1.08, ledger=ledger, settings=settings) is None


def test_what_nothing_was_compared_with_is_for_a_person_to_bless():
    settings = only(**{TIME: {"margin": 0.05}})
    elsewhere = Ledger(entries=(run("a", environment=ELSEWHERE, **{TIME: 1.0}),))
    refused = refusal(TIME, 1.0, ledger=elsewhere, settings=settings)
    assert str(refused.remedy) == (
        "gate.policy.not_comparable is 'if quality holds': if the run is good, bless it, and it "
        "begins a baseline of its own."
    )
    strict = settings.policy.model_copy(update={"not_compared": "refuse"})
    settings = settings.model_copy(update={"policy": strict})
    refused = refusal(TIME, 1.0, ledger=Ledger(), settings=settings)
    assert refused.remedy.setting == "gate.policy.not_compared"


def test_a_counter_that_rose_and_a_missing_figure_have_no_number_to_follow():
    refused = refusal(
        "oom_count", 1.0, ledger=ledger_of("oom_count", [0.0]),
        settings=only(oom_count={"margin": 0.0, "budget": 1.0}),
    )  # fmt: skip
    assert refused.remedy.suggestion == "if the change is meant, bless the run"
    refused = refusal("mfu_ratio", 0.5, ledger=Ledger(), settings=only(**{TIME: {"max": 1.0}}))
    assert refused.remedy.setting == "gate.rules.step_time_seconds.optional"
    assert refused.remedy.value == "false"


def test_too_few_steps_are_named_with_the_setting():
    decision = evaluate(
        run("new", train_step_count=20.0, **{TIME: 1.0}),
        ledger=Ledger(),
        settings=only(**{TIME: {"max": 2.0}}),
    )
    (refused,) = [outcome for outcome in decision.outcomes if outcome.refuses]
    assert str(refused.remedy).startswith("gate.minimum_steps is 50: ")


def test_what_is_only_reported_has_no_remedy():
    rule = Rule(max=1.0, advisory=True)
    decision = evaluate(
        run("new", **{TIME: 2.0}), ledger=Ledger(), settings=only(**{TIME: rule.model_dump()})
    )
    assert decision.outcomes[0].verdict is Verdict.LIMIT
    assert decision.outcomes[0].remedy is None
