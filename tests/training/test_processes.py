"""Ways to train that need their own process: which one wins, and the plans found within it.

Also the plan of workers whose trials chose none (`shared_trials`), and whether one more plan is
worth trying.
"""

import model_cases
import pytest
from model_cases import captured

from tfx_perf.config.training import TrainingSettings
from tfx_perf.core import errors, statistics
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning import shared_trials
from tfx_perf.training.tuning.choice import MUST_BEAT, PlanChoice, TrialProgress, TrialRecord, plain
from tfx_perf.training.tuning.cost_model import CostModel
from tfx_perf.training.tuning.processes import Comparison, Trained, settled_at

WAYS = TrainingPlan(onednn=True), TrainingPlan(precision="mixed_bfloat16")
FUSED = TrainingPlan(steps_per_execution=5, fused_update=True)


def judged(*, off, on, losses=(([1.0], [1.0]), [1.0])):
    first, second = losses
    found = Comparison.of(
        Trained([off] * 9, 9.0, list(first)),
        {WAYS[0]: Trained([on] * 9, 9.0, [second])},
        settings=TrainingSettings(),
        most_seconds=12.0,
    )
    assert (found.without.plan, found.seconds) == (PLAIN_FIT, 12.0)
    (tried,) = found.tried
    return tried


def test_it_must_be_faster_and_reach_the_same_loss():
    faster = judged(off=0.12, on=0.10)
    assert (faster.plan, faster.status) == (WAYS[0], "chosen")
    assert faster.speedup.value == pytest.approx(1.2)
    assert judged(off=0.101, on=0.10).status == "slower"  # within the margin of 2%
    different = judged(off=0.2, on=0.1, losses=(([1.0], [1.0]), [1.1]))
    assert different.status == "different"
    assert "differs by 10.0%" in different.reason
    nan = judged(off=0.2, on=0.1, losses=(([1.0], [1.0]), [float("nan")]))
    assert nan.status == "different"
    # Differences between runs of the same training do not count.
    assert judged(off=0.2, on=0.1, losses=(([1.0], [1.06]), [1.1])).status == "chosen"
    assert judged(off=0.2, on=0.1, losses=(([0.0], [0.0]), [0.0])).status == "chosen"


def test_the_loss_after_each_pass_counts():
    first = [1.0, 0.5, 0.25]
    for found in ([1.0, 0.5, 0.3], [1.0, 0.6, 0.25], [1.0, float("nan"), 0.25]):
        losses = (first, first), found
        assert judged(off=0.2, on=0.1, losses=losses).status == "different"
    losses = (first, first), [1.001, 0.501, 0.2501]
    assert judged(off=0.2, on=0.1, losses=losses).status == "chosen"


def test_the_fastest_of_several_good_ones_is_chosen():
    ways = (*WAYS, TrainingPlan(precision="mixed_float16"))

    def statuses(*step_seconds):
        timed = ([seconds] * 9 for seconds in step_seconds)
        found = Comparison.of(
            Trained([0.2] * 9, 9.0, [[1.0], [1.0]]),
            {plan: Trained(each, 9.0, [[1.0]]) for plan, each in zip(ways, timed, strict=False)},
            settings=TrainingSettings(),
            most_seconds=12.0,
        )
        return [each.status for each in found.tried]

    assert statuses(0.15, 0.1, 0.4) == ["slower", "chosen", "slower"]
    assert statuses(0.4) == ["slower"]


def test_turns_end_when_no_further_one_would_change_the_outcome():
    uneven = [1.0, 1.5, 0.7] * 3
    is_settled = settled_at(0.02)
    assert is_settled([[1.2] * 9, [1.0] * 9])
    assert is_settled([[1.0] * 9, [1.2] * 9])
    assert not is_settled([uneven, [1.0] * 9])
    assert is_settled([[1.2] * 9, [1.0] * 9, [1.1] * 9])
    assert not is_settled([[1.0] * 9, [1.2] * 9, uneven])


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (errors.ChildError("a", "raised ValueError: b", may_pass=False), False),
        (errors.ProcessEndedError("a", "was killed"), True),
        (errors.MeasurementError("200 s were too short to train in turns"), True),
        (errors.UserError("Expected a training in steps of its own."), False),
        (OSError("no space left on device"), True),
    ],
)
def test_turns_that_failed_because_of_the_code_are_not_retried(error, may_pass):
    assert Comparison.failed(WAYS[:1], error, seconds=1.0).may_pass == may_pass
    assert Comparison.failed(WAYS, error, seconds=1.0).may_pass  # the other plan may be good


def interval(value):
    return statistics.Interval(value=value, low=value, high=value)


def turns(plan, *, status="chosen"):
    return Comparison(
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
def test_the_winners_trials_are_compared_with_keras_fit(way, is_plain):
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
            TrialRecord(
                plan=TrainingPlan(steps_per_execution=9), status="failed", reason="it crashed"
            ),
        ),
        trial_time_seconds=10.0,
        is_settled=True,
    )
    choice = turns(way).add_to(found)
    without, tried, other, failed = choice.trials
    assert (without.plan, tried.plan, tried.loss) == (PLAIN_FIT, way, 0.5)
    assert other.plan == with_all_of(way, FUSED)
    assert other.speedup.value == pytest.approx(1.2 * 1.5)
    words = str(way).removeprefix("Keras fit, ")
    assert other.reason == f"1.50 times, both with {words}"
    assert failed.plan == with_all_of(way, TrainingPlan(steps_per_execution=9))
    assert failed.reason == "it crashed"
    chosen = tried if is_plain else other
    assert [each.status for each in choice.trials].count("chosen") == 1
    assert (choice.plan, choice.plan_reason) == (chosen.plan, chosen.reason)
    assert (choice.trial_time_seconds, choice.is_settled) == (40.0, True)


def test_keras_fit_may_send_narrow_gradients():
    """With `distribution.reduction_dtype` it is the reference that plans must beat."""
    narrow, way = TrainingPlan(reduction_dtype="bfloat16"), WAYS[1]
    found = PlanChoice(
        plan=narrow,
        plan_reason="nothing was surely faster",
        trials=(TrialRecord(plan=narrow, status="reference", reason="", loss=0.5),),
    )
    choice = turns(way).add_to(found)
    assert [each.status for each in choice.trials] == ["reference", "chosen"]
    assert choice.trials[1].loss == 0.5
    assert choice.plan_reason == choice.trials[1].reason


def test_a_plan_without_trials_gets_the_winners_precision():
    way = TrainingPlan(precision="mixed_bfloat16")
    untried = PlanChoice(plan=FUSED, plan_reason="without trials", is_settled=True)
    choice = turns(way).add_to(untried)
    assert (choice.plan, choice.plan_reason) == (with_all_of(way, FUSED), "without trials")
    assert [each.status for each in choice.trials] == ["reference", "slower"]


@pytest.mark.parametrize("may_pass", [True, False])
@pytest.mark.parametrize("status", ["slower", "different", "failed"])
def test_the_reason_says_if_keras_fit_was_as_good(status, may_pass):
    way = TrainingPlan(precision="mixed_bfloat16")
    untried = PlanChoice(plan=FUSED, plan_reason="without trials", is_settled=True)
    found = turns(way, status=status)
    tried = tuple(each.model_copy(update={"may_pass": may_pass}) for each in found.tried)
    found = found.model_copy(update={"tried": tried})
    choice = found.add_to(untried)
    assert found.plan == PLAIN_FIT
    assert (choice.plan, choice.plan_reason) == (FUSED, "without trials")
    assert [each.status for each in choice.trials] == [status]
    # The next run retries passing failures, not failures of the code.
    assert choice.is_settled == (status != "failed" or not may_pass)
    assert found.for_another_run().add_to(plain("")).trial_time_seconds == 0.0


def test_nested_choices_are_combined():
    precision, onednn = WAYS[1], WAYS[0]
    found = PlanChoice(
        plan=FUSED,
        plan_reason="1.50 times",
        trials=(
            TrialRecord(plan=PLAIN_FIT, status="reference", reason="", loss=0.5),
            TrialRecord(plan=FUSED, status="chosen", reason="it won", speedup=interval(1.5)),
        ),
    )
    within = turns(onednn).add_to(found)
    choice = turns(precision).add_to(within)
    assert choice.plan == with_all_of(TrainingPlan(onednn=True, precision="mixed_bfloat16"), FUSED)
    assert [str(each.plan) for each in choice.trials] == [
        "Keras fit",
        "Keras fit, mixed_bfloat16",
        "Keras fit, mixed_bfloat16, oneDNN",
        str(choice.plan),
    ]
    assert choice.trials[-1].speedup.value == pytest.approx(1.2 * 1.2 * 1.5)
    (chosen,) = [each for each in choice.trials if each.status == "chosen"]
    assert chosen.plan == choice.plan
    plain_only = turns(precision).add_to(turns(onednn).add_to(plain("nothing beat it")))
    assert (str(plain_only.plan), plain_only.plan_reason) == (
        "Keras fit, mixed_bfloat16, oneDNN",
        "1.20 times, both with mixed_bfloat16",
    )


TEN = TrainingPlan(steps_per_execution=10, fused_update=True)
OTHER = TrainingPlan(steps_per_execution=10, xla=True)


def trial(status, *, speedup=None, compile_time_seconds=1.0, plan=TEN):
    return TrialRecord(
        plan=plan.model_copy(update={"steps_per_execution": 7}),  # these fit into 0.1 s
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
        ([trial("failed")], TEN),  # there was no time to compile it
        ([trial("slower", speedup=1.4)], TEN),
        ([trial("different", plan=OTHER)], TEN),
        ([trial("slower", speedup=0.9)], PLAIN_FIT),
        ([trial("slower")], PLAIN_FIT),
        ([trial("different")], PLAIN_FIT),
        ([trial("failed", compile_time_seconds=None)], PLAIN_FIT),
    ],
)
def test_the_plan_without_trials_is_used_unless_a_trial_speaks_against_it(tried, expected):
    untried = PlanChoice(plan=TEN, plan_reason="without trials")
    choice = plain("nothing beat it").model_copy(update={"trials": tuple(tried)})
    found = shared_trials._or_untried(choice, untried)
    assert found.plan == expected


@pytest.mark.parametrize("own", [[], [trial("slower", speedup=1.4)]])
def test_the_plan_without_trials_is_listed_as_the_chosen_one(own):
    ended = "trials ended before a plan had surely beaten it"
    reference = TrialRecord(plan=PLAIN_FIT, status="reference", reason=ended)
    own = [each.model_copy(update={"plan": TEN}) for each in own]
    trials = (reference, trial("failed", plan=OTHER), *own)
    choice = plain(ended).model_copy(update={"trials": trials})
    untried = PlanChoice(plan=TEN, plan_reason="without trials")
    found = shared_trials._or_untried(choice, untried).with_plan_among_trials
    assert found.trials[1].plan == found.plan == TEN
    assert [each.status for each in found.trials] == ["reference", "chosen", "failed"]
    assert found.trials[0].reason == MUST_BEAT
    assert found.trials[1].reason.endswith(found.plan_reason)
    assert ended in found.plan_reason
    assert (found.trials[1].speedup is None) == (not own)
    assert found.with_plan_among_trials == found
    assert untried.with_plan_among_trials == untried  # nothing was tried


def test_keras_fit_is_listed_among_trials_that_chose_nothing():
    failed = trial("failed", plan=TrainingPlan(precision="mixed_bfloat16"))
    choice = plain("the trials failed").model_copy(update={"trials": (failed,)})
    chosen, other = choice.with_plan_among_trials.trials
    assert (chosen.plan, chosen.reason, other) == (PLAIN_FIT, "the trials failed", failed)


@pytest.mark.parametrize(("culprit", "expected"), [(TEN, PLAIN_FIT), (OTHER, TEN)])
@pytest.mark.parametrize("cause", [None, "no memory was left on worker 1"])
def test_a_plan_that_ended_a_worker_is_not_used(culprit, expected, cause):
    untried = PlanChoice(plan=TEN, plan_reason="without trials", is_settled=True)
    before = trial("different", plan=TrainingPlan(precision="mixed_bfloat16"))
    progress = TrialProgress(began=0.0, running=(culprit,), finished=(before,))
    found = shared_trials._cut_off(untried, progress, cause=cause)
    assert found.plan == expected
    assert found.trials[0] == before
    assert (found.trials[1].plan, found.trials[1].status) == (culprit, "failed")
    assert found.trials[1].reason == (cause or "a worker crashed or hung in its trial")
    assert found.is_settled == (cause is not None)  # the machine may have been preempted


def test_the_winner_of_trials_is_used():
    untried = PlanChoice(plan=TEN, plan_reason="without trials")
    choice = PlanChoice(plan=OTHER, plan_reason="1.5 times", trials=(trial("slower"),))
    assert shared_trials._or_untried(choice, untried) == choice


CALLS = TrainingPlan(steps_per_execution=50)
IN_ONE = TrainingPlan(steps_per_execution=50, xla_loop=True)


def prospect(
    plan, *, step_count, expected_runs=1, tried=PLAIN_FIT, step_seconds=1e-3, extra_seconds=0.0
):
    return CostModel(step_count=step_count, expected_runs=expected_runs).prospect(
        plan,
        tried=tried.speedups,
        step_seconds=step_seconds,
        compile_seconds=0.2,
        extra_seconds=extra_seconds,
    )


@pytest.mark.parametrize(
    ("step_count", "expected_runs", "is_worth_it"),
    [(700, 2, False), (700, 10, True), (10_000, 1, True)],
)
def test_a_plan_is_tried_if_the_runs_are_long_enough(step_count, expected_runs, is_worth_it):
    found = prospect(CALLS, step_count=step_count, expected_runs=expected_runs)
    assert found.is_worth_it == is_worth_it


def test_savings_of_tried_plans_do_not_count_again():
    after_plain = prospect(IN_ONE, step_count=1000)
    after_calls = prospect(IN_ONE, step_count=1000, tried=CALLS)
    assert after_plain.saving_seconds == pytest.approx(1000 * 1e-3)  # all of the time there is
    assert after_calls.saving_seconds == pytest.approx(0.3 * 1000 * 1e-3)
    assert after_calls.cost_seconds == pytest.approx(after_plain.cost_seconds)
    # It needs neither XLA nor turns.
    assert prospect(CALLS, step_count=1000).cost_seconds < after_plain.cost_seconds - 1.0


@pytest.mark.parametrize(
    ("step_seconds", "operation_count", "expected_seconds"),
    [
        (0.27e-3, 0, 0.081e-3),
        (0.27e-3, 700, 0.21e-3),  # the start of operations takes most of it
        (0.27e-3, 2000, 0.27e-3),  # all of the time there is
        (27e-3, 700, 8.1e-3),
    ],
)
def test_a_compiled_call_saves_the_start_of_its_operations(
    step_seconds, operation_count, expected_seconds
):
    cost_model = CostModel(step_count=1, expected_runs=1)
    found = cost_model.prospect(
        IN_ONE, tried=CALLS.speedups, step_seconds=step_seconds, operation_count=operation_count
    )
    assert found.saving_seconds == pytest.approx(expected_seconds)


def test_operations_are_those_of_the_traced_step(keras):
    def count_with(optimizer):
        model = model_cases.dense(keras)
        model.compile(optimizer, "mse")
        loop = FitLoop(captured(model, model_cases.regression()))
        assert loop.functions.operation_count(CALLS) == 0
        loop.prepare(CALLS)
        assert loop.functions.operation_count(PLAIN_FIT) == 0
        return loop.functions.operation_count(CALLS)

    assert 100 < count_with("sgd") < count_with("nadam")


def test_extra_seconds_are_a_cost():
    alone = prospect(IN_ONE, step_count=1000)
    besides = prospect(IN_ONE, step_count=1000, extra_seconds=3.0)
    assert besides.cost_seconds == pytest.approx(alone.cost_seconds + 3.0)


@pytest.mark.parametrize(("step_count", "is_worth_it"), [(100_000, False), (1_000_000, True)])
def test_turns_between_plans_that_cannot_be_slower_are_worth_little(step_count, is_worth_it):
    cost_model = CostModel(step_count=step_count, expected_runs=1)
    assert cost_model.prospect_of_turns(5.0, step_seconds=1e-3).is_worth_it is is_worth_it


def test_long_steps_make_trials_more_expensive():
    short = prospect(CALLS, step_count=60)
    long = prospect(CALLS, step_count=60, step_seconds=0.4)
    assert long.cost_seconds > short.cost_seconds + 20


def test_the_number_of_runs_that_would_suffice_is_known():
    needed = prospect(CALLS, step_count=1000).runs_needed(extra_seconds=0.0)
    assert not prospect(CALLS, step_count=1000, expected_runs=needed - 1).is_worth_it
    assert prospect(CALLS, step_count=1000, expected_runs=needed).is_worth_it
    assert prospect(CALLS, step_count=1000).runs_needed(extra_seconds=8.0) == needed + 10
    assert prospect(CALLS, step_count=1000, tried=CALLS).runs_needed(extra_seconds=0.0) is None


def test_the_reason_names_both_sides():
    assert str(prospect(CALLS, step_count=1000)) == (
        "not tried: it would cost about 1.16 s, and may save 800 ms a run"
    )
