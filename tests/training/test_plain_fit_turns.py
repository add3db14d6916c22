"""What trials find is held against plain `fit` as it is (`plain_fit_turns`)."""

import pytest

from tfx_perf import statistics
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice, TrialRecord, plain
from tfx_perf.training.trials.plain_fit_turns import PlainFitTurns

WAYS = TrainingPlan(onednn=True), TrainingPlan(precision="mixed_bfloat16")
FUSED = TrainingPlan(steps_per_call=5, fused_update=True)


def interval(value):
    return statistics.Interval(value=value, low=value, high=value)


def turns(plan, *, status="chosen"):
    return PlainFitTurns(
        without=TrialRecord(plan=PLAIN_FIT, status="reference", reason="what plans must beat"),
        tried=(TrialRecord(plan=plan, status=status, reason="1.20 times", speedup=interval(1.2)),),
        seconds=9.0,
        wall_seconds=30.0,
    )


def with_all_of(plan, other):
    update = {"onednn": plan.onednn, "precision": plan.precision}
    return other.model_copy(update=update)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_plain", [True, False])
def test_what_is_found_in_the_winners_way_is_held_against_plain_fit(way, is_plain):
    found = PlanChoice(
        plan=PLAIN_FIT if is_plain else FUSED,
        plan_reason="",
        trials=(
            TrialRecord(plan=PLAIN_FIT, status="reference", reason="", loss=0.5),
            TrialRecord(
                plan=FUSED,
                status="slower" if is_plain else "chosen",
                reason="1.50 times",
                speedup=interval(1.5),
            ),
            TrialRecord(plan=TrainingPlan(steps_per_call=9), status="failed", reason="it crashed"),
        ),
        trial_time_seconds=10.0,
        is_settled=True,
    )
    choice = turns(way).held_against(found)
    without, tried, other, failed = choice.trials
    assert (without.plan, tried.plan, tried.loss) == (PLAIN_FIT, way, 0.5)
    assert other.plan == with_all_of(way, FUSED)
    assert other.speedup.value == pytest.approx(1.2 * 1.5)
    words = str(way).removeprefix("plain fit, ")
    assert other.reason == f"1.50 times, both with {words}"
    assert failed.plan == with_all_of(way, TrainingPlan(steps_per_call=9))
    assert failed.reason == "it crashed"
    chosen = tried if is_plain else other
    assert [each.status for each in choice.trials].count("chosen") == 1
    assert (choice.plan, choice.plan_reason) == (chosen.plan, chosen.reason)
    assert (choice.trial_time_seconds, choice.is_settled) == (40.0, True)


def test_a_plan_that_needed_no_trial_computes_in_the_winners_way():
    way = TrainingPlan(precision="mixed_bfloat16")
    untried = PlanChoice(plan=FUSED, plan_reason="without trials", is_settled=True)
    choice = turns(way).held_against(untried)
    assert (choice.plan, choice.plan_reason) == (with_all_of(way, FUSED), "without trials")
    assert [each.status for each in choice.trials] == ["reference", "slower"]


@pytest.mark.parametrize("may_pass", [True, False])
@pytest.mark.parametrize("status", ["slower", "different", "failed"])
def test_where_plain_fit_is_as_good_as_it_is_that_is_said(status, may_pass):
    way = TrainingPlan(precision="mixed_bfloat16")
    untried = PlanChoice(plan=FUSED, plan_reason="without trials", is_settled=True)
    found = turns(way, status=status)
    tried = tuple(each.model_copy(update={"may_pass": may_pass}) for each in found.tried)
    found = found.model_copy(update={"tried": tried})
    choice = found.held_against(untried)
    assert found.plan == PLAIN_FIT
    assert (choice.plan, choice.plan_reason) == (FUSED, "without trials")
    assert [each.status for each in choice.trials] == [status]
    # The next run tries again what may pass, not what the code has failed in.
    assert choice.is_settled == (status != "failed" or not may_pass)
    assert found.for_another_run().held_against(plain("")).trial_time_seconds == 0.0
