"""The plan of workers where trials have chosen none (`trials_together`)."""

import pytest

from tfx_perf import statistics
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials import trials_together
from tfx_perf.training.trials.choice import PlanChoice, TrialRecord, plain

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


def test_what_has_won_trains():
    untried = PlanChoice(plan=TEN, plan_reason="without trials")
    choice = PlanChoice(plan=OTHER, plan_reason="1.5 times", trials=(trial("slower"),))
    assert trials_together._or_untried(choice, untried) == choice
