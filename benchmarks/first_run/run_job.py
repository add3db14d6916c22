"""One run of one pipeline, in a process of its own."""

import pathlib
from typing import Any

from tfx import v1 as tfx

from benchmarks.first_run import data
from benchmarks.first_run.trainings import TRAININGS
from tfx_perf.components import (
    InputTuner,
    MemoryProfiler,
    OptimizedTrainer,
    latest_metrics,
    latest_plans,
)
from tfx_perf.config import PerfConfig
from tfx_perf.pipelines import local_runner, progress, taxi

OURS = ("InputTuner", "MemoryProfiler", "OptimizedTrainer")
STOCK = taxi.STOCK_TRAINER_ID
_EVAL_STEPS = 20


def run(
    *, training: str, line: str, is_stock: bool, label: str, folder: str, data_folder: str
) -> dict[str, float]:
    """Runs the pipeline and returns the wall time of its nodes in seconds.

    Args:
        training: a name in `TRAININGS`.
        line: the Keras package.
        is_stock: whether to train with TFX's Trainer alone.
        label: of the run; a new one trains anew.
        folder: of artifacts and metadata.
        data_folder: where data are kept for the next benchmark.
    """
    place = pathlib.Path(folder)
    if TRAININGS[training].model:
        components = _components(training, line, label=label, data_folder=data_folder)
    else:
        components = _taxi(training, label=label, folder=place)
    ours = {*OURS, "latest_input_plans", "latest_perf_metrics"}
    left_out = ours if is_stock else {STOCK}
    pipeline = tfx.dsl.Pipeline(
        pipeline_name=training,
        pipeline_root=str(place / "artifacts"),
        components=[node for node in components if node.id not in left_out],
        enable_cache=True,
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            str(place / "metadata.sqlite")
        ),
    )
    with (
        open(place / f"{label}.txt", "w", encoding="utf-8") as terminal,
        progress.shown(terminal, pulse_seconds=1.0, longest_pulse_seconds=1.0) as nodes,
    ):
        local_runner.run(pipeline)
    return {node.name: node.seconds for node in nodes}


def _components(name: str, line: str, *, label: str, data_folder: str) -> list[Any]:
    training = TRAININGS[name]
    place = pathlib.Path(data_folder, f"first-run-{training.model}")
    data.write(place, training.model)
    patterns = [
        tfx.proto.Input.Split(name=split, pattern=f"{split}/*") for split in ("train", "eval")
    ]
    examples = tfx.components.ImportExampleGen(
        input_base=str(place), input_config=tfx.proto.Input(splits=patterns)
    )
    statistics = tfx.components.StatisticsGen(examples=examples.outputs["examples"])
    schema = tfx.components.SchemaGen(
        statistics=statistics.outputs["statistics"], infer_feature_shape=True
    )
    given: dict[str, Any] = {
        "examples": examples.outputs["examples"],
        "schema": schema.outputs["schema"],
        "run_fn": "benchmarks.first_run.user_module.run_fn",
        "train_args": tfx.proto.TrainArgs(num_steps=training.steps),
        "eval_args": tfx.proto.EvalArgs(num_steps=_EVAL_STEPS),
        "custom_config": {
            "model": training.model, "line": line, "batch_size": training.batch_size
        },
    }  # fmt: skip
    stock = tfx.components.Trainer(**given).with_id(STOCK)
    plans = latest_plans(given["examples"])
    tuner = InputTuner(**given, previous_plans=plans.outputs["previous_plans"])
    given = {**given, "input_plan": tuner.outputs["input_plan"]}
    profiler = MemoryProfiler(**given)
    metrics = latest_metrics(given["examples"])
    trainer = OptimizedTrainer(
        **given, previous_metrics=metrics.outputs["previous_metrics"], run_label=label
    )
    return [examples, statistics, schema, stock, plans, tuner, profiler, metrics, trainer]


def _taxi(name: str, *, label: str, folder: pathlib.Path) -> list[Any]:
    """Returns the nodes of the demo's pipeline up to our trainer."""
    training = TRAININGS[name]
    whole = taxi.build(
        taxi.TaxiRun(
            folder=folder,
            batch_size=training.batch_size,
            train_steps=training.steps,
            eval_steps=_EVAL_STEPS,
            label=label,
            settings=PerfConfig(),
        )
    )
    ids = [node.id for node in whole.components]
    return list(whole.components[: 1 + ids.index("OptimizedTrainer")])
