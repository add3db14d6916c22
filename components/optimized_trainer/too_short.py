"""Trainings so short that even starting trials would cost more than they may save."""

from tfx_perf import formatting
from tfx_perf.input.record import TuningRecord
from tfx_perf.training.optimizations.steps_per_call import CALL_SECONDS
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice
from tfx_perf.training.trials.worth import Worth

# The cheapest, and what saves most; and what a small model takes to trace.
_PLANS = TrainingPlan(steps_per_call=10), TrainingPlan(steps_per_call=10, xla_call=True)
_COMPILE_SECONDS = 0.3
_TURNS_SECONDS = 3.0  # which the first needs none of


def choice(tuned: TuningRecord, *, planned_runs: int) -> PlanChoice | None:
    """Returns the choice of plain `fit` where nothing is worth trying; None where that is open.

    InputTuner has run the training's step, and knows how many there are.

    Args:
        tuned: the input plan, found with the very training code and arguments.
        planned_runs: trainings that a plan would be for.
    """
    rate = tuned.diagnosis and tuned.diagnosis.train_examples_per_second
    if not rate or tuned.trained_example_count is None:
        return None
    # Which it has timed without what Python takes for a call.
    step_seconds = tuned.batch_size / rate.value + CALL_SECONDS
    step_count = round(tuned.trained_example_count / tuned.batch_size)
    worth = Worth(step_count=step_count, planned_runs=planned_runs)
    prospects = [
        worth.prospect(
            plan,
            best=PLAIN_FIT,
            step_seconds=step_seconds,
            compile_seconds=_COMPILE_SECONDS,
            beside_seconds=turns_seconds,
        )
        for plan, turns_seconds in zip(_PLANS, (0.0, _TURNS_SECONDS), strict=True)
    ]
    if any(prospect.is_worth_it for prospect in prospects):
        return None
    took = formatting.format_seconds(step_count * step_seconds)
    cost = formatting.format_seconds(min(prospect.cost_seconds for prospect in prospects))
    counts = [prospect.runs_needed(beside_seconds=0.0) for prospect in prospects]
    return PlanChoice(
        plan=PLAIN_FIT,
        plan_reason=(
            f"the training is too short for trials: its steps take about {took} with plain fit, "
            f"and trials would take {cost} at least"
        ),
        is_settled=True,
        enough_runs=min(filter(None, counts), default=None),
    )
