"""Whether one more plan is worth trying."""

import model_cases
import pytest
from model_cases import captured

from tfx_perf.training.loop import Loop
from tfx_perf.training.optimizations.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.worth import Worth

CALLS = TrainingPlan(steps_per_call=50)
IN_ONE = TrainingPlan(steps_per_call=50, xla_call=True)


def prospect(
    plan, *, step_count, planned_runs=1, best=PLAIN_FIT, step_seconds=1e-3, beside_seconds=0.0
):
    return Worth(step_count=step_count, planned_runs=planned_runs).prospect(
        plan,
        best=best,
        step_seconds=step_seconds,
        compile_seconds=0.2,
        beside_seconds=beside_seconds,
    )


@pytest.mark.parametrize(
    ("step_count", "planned_runs", "is_worth_it"),
    [(700, 2, False), (700, 10, True), (10_000, 1, True)],
)
def test_a_plan_is_tried_if_the_runs_are_long_enough(step_count, planned_runs, is_worth_it):
    found = prospect(CALLS, step_count=step_count, planned_runs=planned_runs)
    assert found.is_worth_it == is_worth_it


def test_what_the_best_has_already_saves_nothing_more():
    after_plain = prospect(IN_ONE, step_count=1000)
    after_calls = prospect(IN_ONE, step_count=1000, best=CALLS)
    assert after_plain.saving_seconds == pytest.approx(1000 * 1e-3)  # no more than there is
    assert after_calls.saving_seconds == pytest.approx(0.3 * 1000 * 1e-3)
    assert after_calls.cost_seconds == pytest.approx(after_plain.cost_seconds)
    # Neither XLA nor turns.
    assert prospect(CALLS, step_count=1000).cost_seconds < after_plain.cost_seconds - 1.0


@pytest.mark.parametrize(
    ("step_seconds", "operation_count", "hoped_seconds"),
    [
        (0.27e-3, 0, 0.081e-3),
        (0.27e-3, 700, 0.21e-3),  # most of it is their start
        (0.27e-3, 2000, 0.27e-3),  # no more than there is
        (27e-3, 700, 8.1e-3),
    ],
)
def test_one_computation_saves_the_start_of_its_operations(
    step_seconds, operation_count, hoped_seconds
):
    worth = Worth(step_count=1, planned_runs=1)
    found = worth.prospect(
        IN_ONE, best=CALLS, step_seconds=step_seconds, operation_count=operation_count
    )
    assert found.saving_seconds == pytest.approx(hoped_seconds)


def test_operations_are_those_of_the_traced_step(keras):
    def count_with(optimizer):
        model = model_cases.dense(keras)
        model.compile(optimizer, "mse")
        loop = Loop(captured(model, model_cases.regression()))
        assert loop.functions.operation_count(CALLS) == 0
        loop.prepare(CALLS)
        assert loop.functions.operation_count(PLAIN_FIT) == 0
        return loop.functions.operation_count(CALLS)

    assert 100 < count_with("sgd") < count_with("nadam")


def test_what_it_takes_besides_is_a_cost():
    alone = prospect(IN_ONE, step_count=1000)
    besides = prospect(IN_ONE, step_count=1000, beside_seconds=3.0)
    assert besides.cost_seconds == pytest.approx(alone.cost_seconds + 3.0)


@pytest.mark.parametrize(
    ("step_count", "is_worth_it"), [(10_000, False), (100_000, True)]
)
def test_turns_between_plans_that_cannot_be_slower_decide_little(step_count, is_worth_it):
    worth = Worth(step_count=step_count, planned_runs=1)
    assert worth.prospect_of_turns(5.0, step_seconds=1e-3).is_worth_it is is_worth_it


def test_long_steps_cost_their_time():
    short = prospect(CALLS, step_count=60)
    long = prospect(CALLS, step_count=60, step_seconds=0.4)
    assert long.cost_seconds > short.cost_seconds + 20


def test_the_runs_that_would_do_are_known():
    needed = prospect(CALLS, step_count=1000).runs_needed(beside_seconds=0.0)
    assert not prospect(CALLS, step_count=1000, planned_runs=needed - 1).is_worth_it
    assert prospect(CALLS, step_count=1000, planned_runs=needed).is_worth_it
    assert prospect(CALLS, step_count=1000).runs_needed(beside_seconds=8.0) == needed + 10
    assert prospect(CALLS, step_count=1000, best=CALLS).runs_needed(beside_seconds=0.0) is None


def test_the_reason_names_both_sides():
    assert str(prospect(CALLS, step_count=1000)) == (
        "not tried: it would cost about 1.16 s, and may save 800 ms a run"
    )
