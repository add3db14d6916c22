"""The plan of workers where trials have chosen none (`trials_together`)."""

import pytest

from tfx_perf.core import statistics
from tfx_perf.training.optimizations.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials import trials_together
from tfx_perf.training.trials.choice import (
    MUST_BEAT,
    PlanChoice,
    TrialProgress,
    TrialRecord,
    plain,
)

TEN = TrainingPlan(steps_per_call=10, fused_update=True)
OTHER = TrainingPlan(steps_per_call=10, xla=True)


def trial(status, *, speedup=None, compile_time_seconds=1.0, plan=TEN):
    return TrialRecord(
        plan=plan.model_copy(update={"steps_per_call": 7}),  # as many as fit into a tenth second
        status=status,
        reason="of the test",
        speedup=speedup
        and statistics.Interval(value=speedup, low=speedup - 0.5, high=speedup + 0.5),
        compile_time_seconds=compile_time_seconds,
    )


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        ([], TEN),
        ([trial("untried")], TEN),
        ([trial("failed")], TEN),  # there was no time for its compiler
        ([trial("slower", speedup=1.4)], TEN),
        ([trial("different", plan=OTHER)], TEN),
        ([trial("slower", speedup=0.9)], PLAIN_FIT),
        ([trial("slower")], PLAIN_FIT),
        ([trial("different")], PLAIN_FIT),
        ([trial("failed", compile_time_seconds=None)], PLAIN_FIT),
    ],
)
def test_what_needs_no_trial_trains_unless_one_speaks_against_it(tried, expected):
    untried = PlanChoice(plan=TEN, plan_reason="without trials")
    choice = plain("nothing beat it").model_copy(update={"trials": tuple(tried)})
    found = trials_together._or_untried(choice, untried)
    assert found.plan == expected


@pytest.mark.parametrize("own", [[], [trial("slower", speedup=1.4)]])
def test_what_needs_no_trial_is_among_the_trials_as_what_was_chosen(own):
    ended = "the budget ended before a plan had surely beaten it"
    reference = TrialRecord(plan=PLAIN_FIT, status="reference", reason=ended)
    own = [each.model_copy(update={"plan": TEN}) for each in own]
    trials = (reference, trial("failed", plan=OTHER), *own)
    choice = plain(ended).model_copy(update={"trials": trials})
    untried = PlanChoice(plan=TEN, plan_reason="without trials")
    found = trials_together._or_untried(choice, untried).with_plan_among_trials
    assert found.trials[1].plan == found.plan == TEN
    assert [each.status for each in found.trials] == ["reference", "chosen", "failed"]
    assert found.trials[0].reason == MUST_BEAT
    assert found.trials[1].reason.endswith(found.plan_reason)
    assert ended in found.plan_reason
    assert (found.trials[1].speedup is None) == (not own)
    assert found.with_plan_among_trials == found
    assert untried.with_plan_among_trials == untried  # nothing was tried


def test_plain_fit_is_among_trials_of_others_that_came_to_nothing():
    failed = trial("failed", plan=TrainingPlan(precision="mixed_bfloat16"))
    choice = plain("the trials failed").model_copy(update={"trials": (failed,)})
    chosen, other = choice.with_plan_among_trials.trials
    assert (chosen.plan, chosen.reason, other) == (PLAIN_FIT, "the trials failed", failed)


@pytest.mark.parametrize(("culprit", "expected"), [(TEN, PLAIN_FIT), (OTHER, TEN)])
@pytest.mark.parametrize("cause", [None, "no memory was left on worker 1"])
def test_a_plan_that_has_ended_a_worker_is_not_trained_with(culprit, expected, cause):
    untried = PlanChoice(plan=TEN, plan_reason="without trials", is_settled=True)
    before = trial("different", plan=TrainingPlan(precision="mixed_bfloat16"))
    progress = TrialProgress(began=0.0, running=(culprit,), finished=(before,))
    found = trials_together._cut_off(untried, progress, cause=cause)
    assert found.plan == expected
    assert found.trials[0] == before
    assert (found.trials[1].plan, found.trials[1].status) == (culprit, "failed")
    assert found.trials[1].reason == (cause or "a worker ended in it, or did not go on")
    assert found.is_settled == (cause is not None)  # it may have been a preempted machine


def test_what_has_won_trains():
    untried = PlanChoice(plan=TEN, plan_reason="without trials")
    choice = PlanChoice(plan=OTHER, plan_reason="1.5 times", trials=(trial("slower"),))
    assert trials_together._or_untried(choice, untried) == choice
