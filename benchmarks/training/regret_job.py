"""All plans of one training, measured in turns in one process."""

import itertools
import os
import tempfile
from typing import Any

import numpy as np

from benchmarks.training import results
from benchmarks.training.artifacts import Artifacts
from benchmarks.training.workloads import WORKLOADS
from tfx_perf.components import trainer_args
from tfx_perf.config import PerfConfig
from tfx_perf.core import interception, statistics
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.loop.turns import Schedule
from tfx_perf.training.speedups import fused_update
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.step import compiled_call
from tfx_perf.training.tuning import choosing

_STEPS_PER_CALL = (1, 10, 50)
_LONGEST_CALL_SECONDS = 0.5
# A plan that takes this many times as long as the best plan is dropped after a few rounds.
_HOPELESS = 1.5
_FEWEST_ROUNDS = 2
_STEPS = 20_000  # a long training gets more time for trials


def run(workload: str, *, rounds: int, data_folder: str) -> dict[str, Any]:
    """Chooses a plan by trials, measures all plans, and returns a `results.Regret`.

    Args:
        workload: a key of `WORKLOADS`.
        rounds: blocks of each plan.
        data_folder: where data sets are kept.

    Raises:
        UserError: the data are not on this machine.
    """
    settings = PerfConfig()
    with tempfile.TemporaryDirectory() as folder:
        given = Artifacts(WORKLOADS[workload], data_folder=data_folder, folder=folder)
        properties = given.properties(
            steps=_STEPS, clock=os.path.join(folder, "clock"), settings=settings.to_json()
        )
        arguments = trainer_args.fn_args(given.inputs, given.outputs, properties)
        run_fn = trainer_args.load_run_fn(properties)

        def measured(call: interception.FitCall) -> results.Regret:
            loop = FitLoop(call)
            chosen = choosing.by_trials(call, loop, settings=settings).plan
            return _regret(call, loop, chosen, rounds=rounds)

        found = interception.capture_fit(lambda: run_fn(arguments), measured)
    return found.model_dump(mode="json")


def _regret(
    call: interception.FitCall, loop: FitLoop, chosen: TrainingPlan, *, rounds: int
) -> results.Regret:
    data = call.arguments["x"]
    loop.prepare()
    blocks: dict[TrainingPlan, list[float]] = {}

    def schedule() -> Schedule:
        step_seconds = yield loop.turn(PLAIN_FIT)
        plans = dict.fromkeys([PLAIN_FIT, *_fixed_plans(call, loop, step_seconds), chosen])
        blocks.update({plan: [] for plan in plans})
        for plan in plans:
            yield loop.turn(plan)  # traces and compiles
        running = list(plans)
        for index in range(rounds):
            for plan in running:
                blocks[plan].append((yield loop.turn(plan)))
            if index + 1 == _FEWEST_ROUNDS:
                best = min(np.median(own) for own in blocks.values())
                kept = (PLAIN_FIT, chosen)
                running = [
                    plan
                    for plan in running
                    if plan in kept or np.median(blocks[plan]) < _HOPELESS * best
                ]

    loop.take_turns(schedule(), data)
    complete = {plan: own for plan, own in blocks.items() if len(own) == rounds}
    best = min(complete, key=lambda plan: np.median(complete[plan]))
    return results.Regret(
        speedups={
            str(plan): statistics.ratio_interval(blocks[PLAIN_FIT][: len(own)], own)
            for plan, own in blocks.items()
        },
        chosen=str(chosen),
        best=str(best),
        regret_ratio=statistics.ratio_interval(blocks[chosen], blocks[best]).value - 1,
    )


def _fixed_plans(
    call: interception.FitCall, loop: FitLoop, step_seconds: float
) -> list[TrainingPlan]:
    may_fuse = fused_update.is_possible(call.model.optimizer, loop.keras_api)
    fused = (False, True) if may_fuse else (False,)
    options = [
        {"xla": xla, "fused_update": one_kernel}
        for xla, one_kernel in itertools.product((False, True), fused)
    ]
    if not compiled_call.obstacle(call.model, loop.keras_api, loop.element_spec):
        options.append({"xla_loop": True})
    return [
        TrainingPlan(steps_per_execution=steps, **option)
        for option, steps in itertools.product(options, _STEPS_PER_CALL)
        if steps == 1 or steps * step_seconds <= _LONGEST_CALL_SECONDS
    ]
