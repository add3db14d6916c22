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
    if not settings.training.trial_budget_seconds or obstacle(call, loop):
        return choosing.by_trials(call, loop, settings=settings)  # which says why there are none
    data = independent.independent(call.arguments["x"])
    if data is None:
        return plain(
            "the data call Python functions, and trials might take what those give but once",
            is_settled=True,
        )
    before = generators.states()
    try:
        tried = dataclasses.replace(call, arguments={**call.arguments, "x": data})
        return choosing.by_trials(tried, loop, settings=settings)
    finally:
        generators.put_back(before)
