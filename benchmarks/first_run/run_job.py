"""One run of one pipeline, in a process of its own."""

import pathlib
import sys
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
from tfx_perf.pipelines import local_runner, progress, taxi

OURS = ("InputTuner", "MemoryProfiler", "OptimizedTrainer")
STOCK = "Trainer"
_EVAL_STEPS = 20


def run(
    *, training: str, line: str, is_stock: bool, label: str, folder: str, data_folder: str
) -> dict[str, float]:
    """Runs the pipeline and returns the wall time of its nodes in seconds.

    Args:
        training: a name in `TRAININGS`.
        line: the Keras package.
        is_stock: whether to train with TFX's Trainer alone.
        label: of the run; a new label trains again.
        folder: of artifacts and metadata.
        data_folder: where data are kept for the next benchmark.
    """
    place = pathlib.Path(folder)
    if TRAININGS[training].model:
        nodes, given = _own(training, line, data_folder=data_folder)
    else:
        nodes, given = _taxi(training, folder=place)
    nodes += [tfx.components.Trainer(**given)] if is_stock else _ours(given, label=label)
    pipeline = tfx.dsl.Pipeline(
        pipeline_name=training,
        pipeline_root=str(place / "artifacts"),
        components=nodes,
        enable_cache=True,
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            str(place / "metadata.sqlite")
        ),
    )
    with open(place / f"{label}.txt", "w") as terminal, progress.shown(terminal) as nodes:
        local_runner.run(pipeline)
    return {node.name: node.seconds for node in nodes}


def _own(name: str, line: str, *, data_folder: str) -> tuple[list[Any], dict[str, Any]]:
    """Returns the nodes before the trainer of one of our models, and the trainer's arguments."""
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
    return [examples, statistics, schema], given


def _taxi(name: str, *, folder: pathlib.Path) -> tuple[list[Any], dict[str, Any]]:
    """Returns the same for TFX's taxi template."""
    training = TRAININGS[name]
    project = folder / "project"
    taxi.write_project(project, batch_size=training.batch_size)
    sys.path.insert(0, str(project))
    examples = tfx.components.CsvExampleGen(input_base=str(project / "data"))
    statistics = tfx.components.StatisticsGen(examples=examples.outputs["examples"])
    schema = tfx.components.SchemaGen(statistics=statistics.outputs["statistics"])
    transform = tfx.components.Transform(
        examples=examples.outputs["examples"],
        schema=schema.outputs["schema"],
        preprocessing_fn="models.preprocessing.preprocessing_fn",
    )
    given = {
        "examples": transform.outputs["transformed_examples"],
        "transform_graph": transform.outputs["transform_graph"],
        "schema": schema.outputs["schema"],
        "run_fn": "models.keras_model.model.run_fn",
        "train_args": tfx.proto.TrainArgs(num_steps=training.steps),
        "eval_args": tfx.proto.EvalArgs(num_steps=_EVAL_STEPS),
    }
    return [examples, statistics, schema, transform], given


def _ours(given: dict[str, Any], *, label: str) -> list[Any]:
    plans = latest_plans(given["examples"])
    tuner = InputTuner(**given, previous_plans=plans.outputs["previous_plans"])
    given = {**given, "input_plan": tuner.outputs["input_plan"]}
    profiler = MemoryProfiler(**given)
    metrics = latest_metrics(given["examples"], run_label=label)
    trainer = OptimizedTrainer(
        **given, previous_metrics=metrics.outputs["previous_metrics"], run_label=label
    )
    return [plans, tuner, profiler, metrics, trainer]
