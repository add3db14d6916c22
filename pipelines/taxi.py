"""The pipeline on TFX's Chicago taxi data, with the stock model module of `tfx template copy`."""

import os
import pathlib
import re
import shutil
import sys
from typing import Any

import tensorflow_model_analysis as tfma
from tfx import v1 as tfx
from tfx.components.trainer import executor as trainer_executor
from tfx.dsl.components.base import executor_spec
from tfx.tools.cli import labels
from tfx.tools.cli.handler import template_handler
from tfx.types import artifact, artifact_utils

from tfx_perf.config import PerfConfig
from tfx_perf.core import console, errors, interception
from tfx_perf.pipelines import local_runner, progress
from tfx_perf.pipelines.training_pipeline import TrainingCode, create_pipeline
from tfx_perf.training import session
from tfx_perf.training.keras_api import either_keras

STOCK_TRAINER_ID = "StockTrainer"
BY_HAND_TRAINER_ID = "TrainerByHand"
SEED = 1
STOCK_FILE = "stock_metrics.json"

_CONSTANTS = pathlib.Path("models", "keras_model", "constants.py")
# An engineer's manual optimizations: examples in memory, and several steps per call.
_BY_HAND = {
    "metrics=[tf.keras.metrics.BinaryAccuracy()],": (
        "metrics=[tf.keras.metrics.BinaryAccuracy()], steps_per_execution=50,"
    ),
    "batch_size=batch_size,": "batch_size=batch_size, num_epochs=1, shuffle=False,",
    ".schema).repeat()": ".schema).cache().shuffle(1000).repeat()",
}
_MODEL = pathlib.Path("models", "keras_model", "model.py")
_BATCH_SIZES = re.compile(r"^(TRAIN|EVAL)_BATCH_SIZE = \d+$", re.MULTILINE)


class StockTrainerExecutor(trainer_executor.GenericExecutor):
    """TFX's own executor, whose `fit` a callback times; nothing else is changed."""

    def Do(  # noqa: N802 (TFX's name)
        self,
        input_dict: dict[str, list[artifact.Artifact]],
        output_dict: dict[str, list[artifact.Artifact]],
        exec_properties: dict[str, object],
    ) -> None:
        """Trains as TFX does and writes the figures into the folder of `model_run`."""
        either_keras.set_random_seed(SEED)
        observer = session.TrainingSession(PerfConfig())
        with interception.intercepting_fit(observer.measure_only):
            super().Do(input_dict, output_dict, exec_properties)
        folder = pathlib.Path(artifact_utils.get_single_uri(output_dict["model_run"]))
        measured = observer.record
        if measured is None:
            raise errors.MeasurementError("The fit of the stock Trainer could not be measured.")
        measured.write(folder / STOCK_FILE)


def write_project(folder: pathlib.Path, *, batch_size: int) -> None:
    """Writes the stock taxi project unless it exists: ExampleGen's cache depends on file times."""
    if not folder.exists():
        _write_stock(folder, batch_size=batch_size)
    text = (folder / _MODEL).read_text()
    for stock, tuned in _BY_HAND.items():
        count = text.count(stock)
        if count != 1:
            raise RuntimeError(f"Expected {stock!r} once in {_MODEL}. Received: count={count}.")
        text = text.replace(stock, tuned)
    (folder / _MODEL).with_name("by_hand.py").write_text(text)


def _write_stock(folder: pathlib.Path, *, batch_size: int) -> None:
    draft = folder.with_name(folder.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    template_handler.copy_template(
        {labels.MODEL: "taxi", labels.PIPELINE_NAME: "taxi", labels.DESTINATION_PATH: str(draft)}
    )
    constants = draft / _CONSTANTS
    text, count = _BATCH_SIZES.subn(rf"\1_BATCH_SIZE = {batch_size}", constants.read_text())
    if count != 2:  # noqa: PLR2004
        raise RuntimeError(f"Expected two batch sizes in {constants}. Received: count={count}.")
    constants.write_text(text)
    draft.rename(folder)


def eval_config() -> tfma.EvalConfig:
    """Returns Evaluator's settings: accuracy of at least 0.6 and no worse than the last."""
    threshold = tfma.MetricThreshold(
        value_threshold=tfma.GenericValueThreshold(lower_bound={"value": 0.6}),
        change_threshold=tfma.GenericChangeThreshold(
            direction=tfma.MetricDirection.HIGHER_IS_BETTER, absolute={"value": -0.02}
        ),
    )
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default",
                label_key="tips_xf",
                preprocessing_function_names=["transform_features"],
            )
        ],
        slicing_specs=[tfma.SlicingSpec()],
        metrics_specs=[
            tfma.MetricsSpec(
                metrics=[tfma.MetricConfig(class_name="BinaryAccuracy", threshold=threshold)]
            )
        ],
    )


def _pipeline(
    folder: pathlib.Path,
    *,
    batch_size: int,
    train_steps: int,
    eval_steps: int,
    label: str,
    settings: PerfConfig,
) -> tfx.dsl.Pipeline:
    """Returns the pipeline; TFX's Trainers precede our components, which hold memory."""
    project = folder / "project"
    write_project(project, batch_size=batch_size)
    sys.path.insert(0, str(project))
    code = TrainingCode(
        preprocessing_fn="models.preprocessing.preprocessing_fn",
        run_fn="models.keras_model.model.run_fn",
        train_steps=train_steps,
        eval_steps=eval_steps,
    )
    pipeline = create_pipeline(
        pipeline_name=f"taxi-batch-{batch_size}",
        pipeline_root=str(folder / "artifacts"),
        data_path=str(project / "data"),
        code=code,
        eval_config=eval_config(),
        serving_model_dir=str(folder / "serving_model"),
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            str(folder / "metadata.sqlite")
        ),
        config=settings,
        run_label=label,
    )
    nodes = {node.id: node for node in pipeline.components}
    transform = nodes["Transform"]
    trainers = [
        tfx.components.Trainer(
            run_fn=run_fn,
            examples=transform.outputs["transformed_examples"],
            transform_graph=transform.outputs["transform_graph"],
            schema=nodes["SchemaGen"].outputs["schema"],
            train_args=code.train_args,
            eval_args=code.eval_args,
            custom_config={**code.config_for(run_fn), "run_label": label},
            custom_executor_spec=executor_spec.ExecutorClassSpec(StockTrainerExecutor),
        ).with_id(node_id)
        for node_id, run_fn in (
            (STOCK_TRAINER_ID, code.run_fn),
            (BY_HAND_TRAINER_ID, "models.keras_model.by_hand.run_fn"),
        )
    ]
    components = list(pipeline.components)
    position = components.index(nodes["InputTuner"])
    pipeline.components = components[:position] + trainers + components[position:]
    return pipeline


def run_in_process(*, folder: str, settings: str, **run: Any) -> dict[str, float]:
    """Runs the pipeline from plain values, for `isolate.run`; returns the seconds of each node.

    A new `label` trains again; the same one takes finished nodes from cache. Only the lines about
    the nodes are written to standard output.
    """
    with (
        os.fdopen(os.dup(1), "w", encoding="utf-8") as terminal,
        console.output_to_error(),
        progress.shown(terminal) as nodes,
    ):
        pipeline = _pipeline(pathlib.Path(folder), settings=PerfConfig.from_json(settings), **run)
        local_runner.run(pipeline)
    return {node.name: node.seconds for node in nodes}
