"""A complete pipeline: from CSV files to a pushed model, tuned, profiled and gated."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow_model_analysis as tfma
from ml_metadata.proto import metadata_store_pb2
from tfx import v1 as tfx

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
from tfx_perf.core import cache_key, errors


@dataclasses.dataclass(frozen=True)
class TrainingCode:
    """The user's own code and how long it runs.

    Attributes:
        preprocessing_fn: import path of Transform's function.
        run_fn: import path of the training function.
        train_steps: steps of training, unless a run says otherwise (`train_steps` is a runtime
            parameter of the pipeline).
        eval_steps: steps of validation.
        custom_config: passed to both functions.
    """

    preprocessing_fn: str
    run_fn: str
    train_steps: int
    eval_steps: int
    custom_config: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def train_args(self) -> tfx.proto.TrainArgs:
        """The steps as Trainer takes them."""
        return tfx.proto.TrainArgs(num_steps=self.train_steps)

    @property
    def eval_args(self) -> tfx.proto.EvalArgs:
        """The validation steps as Trainer takes them."""
        return tfx.proto.EvalArgs(num_steps=self.eval_steps)

    def config_for(self, function: str) -> dict[str, Any]:
        """Returns the custom configuration with a digest of the source of the function at a path.

        An edit of the code changes the digest, but not the import path, which is all that TFX's
        cache would look at. The components of tfx-perf have the digest as a property anyway.
        """
        return {**self.custom_config, "source_digest": cache_key.of_source(function)}


_EXAMPLE_GENS = {"csv": tfx.components.CsvExampleGen, "tfrecord": tfx.components.ImportExampleGen}


def create_pipeline(
    *,
    pipeline_name: str,
    pipeline_root: str,
    data_path: str,
    code: TrainingCode,
    eval_config: tfma.EvalConfig,
    serving_model_dir: str,
    data_format: str = "csv",
    metadata_connection_config: metadata_store_pb2.ConnectionConfig | None = None,
    config: PerfConfig | Mapping[str, Any] | None = None,
    run_label: str | None = None,
    beam_pipeline_args: Sequence[str] = (),
) -> tfx.dsl.Pipeline:
    """Builds the pipeline; adapt it by copying, it holds no logic of its own.

    ExampleGen, StatisticsGen, SchemaGen, ExampleValidator, Transform, InputTuner,
    MemoryProfiler, OptimizedTrainer, Evaluator, PerfEvaluator, Pusher; and four resolvers, for
    the input plans and the training plans of earlier runs, for the last blessed model and for the
    ledger of blessed runs. Pusher needs both blessings. Caching is on: a failed run that is
    repeated resumes at the node that failed.

    Any orchestrator can run it, and set two parameters for a run: the number of training steps
    (`train_steps`, an integer) and the folder of the artifacts (`pipeline-root`, TFX's own
    parameter).

    Args:
        pipeline_name: name in ML Metadata; runs of one name share their baseline.
        pipeline_root: folder for the artifacts.
        data_path: folder with the data.
        code: the user's functions, importable where the components run.
        eval_config: Evaluator's metrics and thresholds.
        serving_model_dir: where blessed models are pushed to.
        data_format: `csv`, or `tfrecord` for records of tf.Example.
        metadata_connection_config: where ML Metadata is, e.g. SQLite or PostgreSQL; None if the
            orchestrator has its own, like Kubeflow Pipelines.
        config: settings of the four components.
        run_label: a new label trains again although nothing has changed; None takes a model that
            was trained on the same data by the same code from cache.
        beam_pipeline_args: options of Beam for the steps that read all of the data (ExampleGen,
            StatisticsGen, Transform, InputTuner, Evaluator), e.g. another runner or more workers.

    Raises:
        UserError: the functions' modules cannot be found, or `config` or `data_format` is wrong.
    """
    if data_format not in _EXAMPLE_GENS:
        raise errors.UserError(
            f"Expected data_format to be one of {', '.join(_EXAMPLE_GENS)}. "
            f"Received: data_format={data_format}."
        )
    settings = PerfConfig.of(config)
    example_gen = _EXAMPLE_GENS[data_format](input_base=data_path)
    statistics_gen = tfx.components.StatisticsGen(examples=example_gen.outputs["examples"])
    schema_gen = tfx.components.SchemaGen(statistics=statistics_gen.outputs["statistics"])
    example_validator = tfx.components.ExampleValidator(
        statistics=statistics_gen.outputs["statistics"], schema=schema_gen.outputs["schema"]
    )
    transform = tfx.components.Transform(
        examples=example_gen.outputs["examples"],
        schema=schema_gen.outputs["schema"],
        preprocessing_fn=code.preprocessing_fn,
        custom_config=code.config_for(code.preprocessing_fn),
    )
    examples = transform.outputs["transformed_examples"]
    training = {
        "run_fn": code.run_fn,
        "examples": examples,
        "transform_graph": transform.outputs["transform_graph"],
        "schema": schema_gen.outputs["schema"],
        "train_args": code.train_args,
        "train_steps": tfx.dsl.experimental.RuntimeParameter(
            name="train_steps", ptype=int, default=code.train_steps
        ),
        "eval_args": code.eval_args,
        "custom_config": dict(code.custom_config),
        "config": settings,
    }
    cache_key.of_source(code.run_fn)  # raises if there is no such code
    plans = latest_plans(examples)
    input_tuner = InputTuner(**training, previous_plans=plans.outputs["previous_plans"])
    training["input_plan"] = input_tuner.outputs["input_plan"]
    memory_profiler = MemoryProfiler(**training)
    previous_metrics = latest_metrics(examples, run_label=run_label)
    trainer = OptimizedTrainer(
        **training,
        previous_metrics=previous_metrics.outputs["previous_metrics"],
        run_label=run_label,
    )
    blessed_model = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
        model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
        model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
    ).with_id("latest_blessed_model")
    evaluator = tfx.components.Evaluator(
        examples=example_gen.outputs["examples"],
        model=trainer.outputs["model"],
        baseline_model=blessed_model.outputs["model"],
        eval_config=eval_config,
    )
    ledger = latest_ledger(trainer.outputs["perf_metrics"])
    perf_evaluator = PerfEvaluator(
        model=trainer.outputs["model"],
        perf_metrics=trainer.outputs["perf_metrics"],
        memory_profile=memory_profiler.outputs["memory_profile"],
        input_plan=input_tuner.outputs["input_plan"],
        model_evaluation=evaluator.outputs["evaluation"],
        ledger=ledger.outputs["ledger"],
        config=settings,
    )
    pusher = tfx.components.Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        infra_blessing=perf_evaluator.outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=serving_model_dir)
        ),
    )
    return tfx.dsl.Pipeline(
        pipeline_name=pipeline_name,
        pipeline_root=pipeline_root,
        components=[
            example_gen,
            statistics_gen,
            schema_gen,
            example_validator,
            transform,
            plans,
            input_tuner,
            memory_profiler,
            previous_metrics,
            trainer,
            blessed_model,
            evaluator,
            ledger,
            perf_evaluator,
            pusher,
        ],
        metadata_connection_config=metadata_connection_config,
        enable_cache=True,
        beam_pipeline_args=list(beam_pipeline_args),
    )
