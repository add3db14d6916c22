"""tfx-perf in this project's pipeline; yours to change."""

import pathlib
from typing import Any

from tfx.dsl.components.base import base_node
from tfx.types import channel

from tfx_perf.components import (
    InputTuner,
    MemoryProfiler,
    OptimizedTrainer,
    PerfEvaluator,
    latest_ledger,
    latest_metrics,
    latest_plans,
)
from tfx_perf.config import PerfConfig

SETTINGS = pathlib.Path(__file__).with_name("perf.yaml")


def train(
    **training: Any,
) -> tuple[OptimizedTrainer, channel.BaseChannel, list[base_node.BaseNode]]:
    """Replaces Trainer with OptimizedTrainer and the components that work with it.

    Args:
        **training: the arguments of TFX's Trainer.

    Returns:
        OptimizedTrainer, which has Trainer's outputs; the blessing of PerfEvaluator, for Pusher's
        `infra_blessing`; and the other nodes, which must be added to the pipeline too.
    """
    settings = PerfConfig.from_yaml(SETTINGS)
    plans = latest_plans(training["examples"])
    input_tuner = InputTuner(
        **training, previous_plans=plans.outputs["previous_plans"], config=settings
    )
    training["input_plan"] = input_tuner.outputs["input_plan"]
    memory_profiler = MemoryProfiler(**training, config=settings)
    metrics = latest_metrics(training["examples"])
    trainer = OptimizedTrainer(
        **training, previous_metrics=metrics.outputs["previous_metrics"], config=settings
    )
    ledger = latest_ledger(trainer.outputs["perf_metrics"])
    gate = PerfEvaluator(
        model=trainer.outputs["model"],
        perf_metrics=trainer.outputs["perf_metrics"],
        memory_profile=memory_profiler.outputs["memory_profile"],
        input_plan=input_tuner.outputs["input_plan"],
        ledger=ledger.outputs["ledger"],
        config=settings,
    )
    others = [plans, input_tuner, memory_profiler, metrics, ledger, gate]
    return trainer, gate.outputs["blessing"], others
