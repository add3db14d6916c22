"""Trials in the process that trains, after which everything is as it was."""

import contextlib
import dataclasses
from collections.abc import Iterator

from tfx_perf import errors
from tfx_perf.config import PerfConfig
from tfx_perf.interception import FitCall
from tfx_perf.tf_internals import ancestry
from tfx_perf.training.eligibility import obstacle
from tfx_perf.training.fit.takeover import others_wait
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials import choosing, surroundings
from tfx_perf.training.trials.choice import PlanChoice, plain
from tfx_perf.training.trials.starting_point import variables_of
from tfx_perf.training.trials.variant import Variant

NEEDS_OWN_PROCESS = (
    "the data call Python functions, or too much is held beside the model, so that trials might "
    "change what they must not: what TensorFlow reads by itself, TFRecord files, say, has trials"
)
"""Why plain `fit` trains where trials have no other process to run in."""


def choose_and_restore(
    call: FitCall,
    loop: Loop,
    *,
    settings: PerfConfig,
    previous_plan: TrainingPlan | None = None,
) -> PlanChoice:
    """Returns the plan that wins; model, generators and data are as they were before.

    Args:
        call: the user's `fit`.
        loop: the loop that the plan will be used with.
        settings: see `choosing.by_trials`.
        previous_plan: see `Trials`.
    """
    if not settings.training.trial_budget_seconds:
        return choosing.by_trials(call, loop, settings=settings)  # which says so
    reason = obstacle(call, loop)
    if reason:  # not settled: what no digest knows, such as an argument of a script, may decide it
        return plain(reason)
    with on_own_data(call, loop) as own:
        if own is None:
            return plain(NEEDS_OWN_PROCESS, is_settled=True)
        return choosing.by_trials(own, loop, settings=settings, previous_plan=previous_plan)


@contextlib.contextmanager
def on_own_data(call: FitCall, loop: Loop) -> Iterator[FitCall | None]:
    """Yields the `fit` on data like its own that share nothing with them, to be tried on.

    At the end what a step may have changed outside of the model is as it was. Other threads that
    call the model wait for the end.

    Args:
        call: the user's `fit`.
        loop: the loop that would run it.

    Yields:
        None if the data call Python functions, or too much would have to be kept. `call` itself if
        nothing can be tried on it.
    """
    if obstacle(call, loop):
        yield call
        return
    data = ancestry.independent(call.arguments["x"])
    if data is None:
        yield None
        return
    if not call.model.built:  # by the numbers that plain `fit` would draw
        with contextlib.suppress(*errors.GIVEN_UP):  # which trials then raise
            loop.prepare()
    outside = surroundings.variables(beside=variables_of(Variant(call, loop)).values())
    if outside is None:
        yield None
        return
    kept = surroundings.kept(outside, used=lambda: loop.functions.used_variables)
    with others_wait(call.model), kept:
        yield dataclasses.replace(call, arguments={**call.arguments, "x": data})
