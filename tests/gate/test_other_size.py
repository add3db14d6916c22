"""What the headline says of a model that was made larger, and is slower."""

import pytest
from gate_runs import HERE, only, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.settings.policy import Policy

STEP = "step_time_seconds"
SMALL = {**HERE, "parameter_count": "1000", "flops_per_step": "100000"}
LARGE = {**HERE, "parameter_count": "30000", "flops_per_step": "3000000"}


def judged(seconds, *, environment, policy=None, **rule):
    before = run("old", environment=SMALL, train_loss=0.5, **{STEP: 0.001})
    settings = only(**{STEP: {"margin": 0.03, **rule}, "train_loss": {"margin": 0.05}})
    if policy:
        settings = settings.model_copy(update={"policy": policy})
    candidate = run("new", environment=environment, train_loss=0.5, **{STEP: seconds})
    return evaluate(candidate, ledger=Ledger(entries=(before,)), settings=settings)


def test_slower_steps_of_a_larger_model_are_told_with_what_sets_a_limit():
    decision = judged(0.031, environment=LARGE)
    assert decision.blessed
    assert (
        "A step does 30 times the work of the last blessed run's, and takes 31 times as long; not "
        "refused for it: rules: {step_time_seconds: {max: SECONDS}} would set a limit. Blessed:"
    ) in decision.headline


def test_what_the_size_does_not_explain_is_refused():
    decision = judged(0.052, environment=LARGE)
    assert not decision.blessed
    assert "takes 52 times as long. Refused by 1 of 2 checks." in decision.headline


def test_that_limit_refuses_it():
    decision = judged(0.031, environment=LARGE, max=0.01)
    assert not decision.blessed
    assert "takes 31 times as long. Refused" in decision.headline


def test_a_policy_that_refuses_it_is_not_said_to_bless_it():
    decision = judged(0.031, environment=LARGE, policy=Policy(not_comparable="refuse"))
    assert not decision.blessed
    assert "takes 31 times as long. Refused" in decision.headline


def test_of_parameters_alone_nothing_is_said_of_work():
    decision = judged(0.002, environment={**SMALL, "parameter_count": "5000"})
    assert (
        "The model has 5 times the last blessed run's parameters, and a step takes 2 times as long;"
    ) in decision.headline


@pytest.mark.parametrize(
    ("seconds", "environment"),
    [
        (0.0005, LARGE),
        (0.052, {**LARGE, "device_kind": "A100"}),
        (0.052, {**HERE, "parameter_count": "30000"}),
    ],
    ids=["faster", "another device", "work unknown"],
)
def test_where_the_size_does_not_tell_nothing_is_said(seconds, environment):
    assert "times as long" not in judged(seconds, environment=environment).headline
