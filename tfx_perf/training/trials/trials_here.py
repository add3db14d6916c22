"""Trials in the process that trains, after which everything is as it was."""

import dataclasses

from tfx_perf.config import PerfConfig
from tfx_perf.interception import FitCall
from tfx_perf.tf_data import independent
from tfx_perf.training.eligibility import obstacle
from tfx_perf.training.loop import Loop
from tfx_perf.training.recovery import generators
from tfx_perf.training.trials import choosing
from tfx_perf.training.trials.choice import PlanChoice, plain


def choose_and_restore(call: FitCall, loop: Loop, *, settings: PerfConfig) -> PlanChoice:
    """Returns the plan that wins; model, generators and data are as they were before.

    Args:
        call: the user's `fit`.
        loop: the loop that the plan will be used with.
        settings: see `choosing.by_trials`.
    """
    own = on_own_data(call, loop) if settings.training.trial_budget_seconds else call
    if own is None:
        return plain(
            "the data call Python functions, and trials might take what those give but once",
            is_settled=True,
        )
    with generators.kept():
        return choosing.by_trials(own, loop, settings=settings)


def on_own_data(call: FitCall, loop: Loop) -> FitCall | None:
    """Returns the `fit` on data like its own that share nothing with them.

    Args:
        call: the user's `fit`.
        loop: the loop that would run it.

    Returns:
        None if the data call Python functions. `call` itself if nothing can be tried on it.
    """
    if obstacle(call, loop):
        return call
    data = independent.independent(call.arguments["x"])
    return data and dataclasses.replace(call, arguments={**call.arguments, "x": data})
