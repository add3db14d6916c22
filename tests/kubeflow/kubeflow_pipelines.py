"""Small pipelines and their settings, for the tests of what Kubeflow gets."""

import pathlib

import pytest
import yaml
from tfx import v1 as tfx
from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import standard_artifacts

from tfx_perf.components import (
    InputTuner,
    MemoryProfiler,
    OptimizedTrainer,
    PerfEvaluator,
    latest_ledger,
    latest_metrics,
    latest_plans,
)

pytest.importorskip("kfp", reason="kfp is not installed (extra kfp)")

from tfx_perf.kubeflow import compile_pipeline  # noqa: E402

SETTINGS = {"image": "example/taxi:1", "pipeline_root": "minio://mlpipeline/v2/artifacts"}


@component
def Measure(count: Parameter[int], number: OutputArtifact[standard_artifacts.Integer]):  # noqa: N802
    """Puts out a number."""
    number.value = count
    number.set_int_custom_property("count", count)


@component
def Use(  # noqa: N802
    number: Parameter[int],
    factor: Parameter[float],
    model: OutputArtifact[standard_artifacts.Model],
    fails_without: Parameter[str] = "",
):
    """Needs the number when it begins; fails if a file is not there, and makes it."""
    if fails_without and not pathlib.Path(fails_without).exists():
        pathlib.Path(fails_without).touch()
        raise RuntimeError("the first try fails")
    pathlib.Path(model.uri, "product").write_text(str(number * factor))


@component
def Refused(  # noqa: N802
    model: OutputArtifact[standard_artifacts.Model],
    number: OutputArtifact[standard_artifacts.Integer],
):
    """Leaves the model's folder empty and sets what the metadata store of Kubeflow refuses."""
    model.mlmd_artifact.custom_properties["flag"].bool_value = True
    model.mlmd_artifact.custom_properties["not_a_number"].double_value = float("nan")
    model.mlmd_artifact.custom_properties["unset"].SetInParent()
    model.set_string_custom_property("folder", model.uri)
    number.value = 7


def four_components(data_path="data", **config):
    """Returns a pipeline with everything of ours, on raw examples, and a parameter of the run."""
    example_gen = tfx.components.CsvExampleGen(input_base=str(data_path))
    examples = example_gen.outputs["examples"]
    statistics_gen = tfx.components.StatisticsGen(examples=examples)
    schema_gen = tfx.components.SchemaGen(statistics=statistics_gen.outputs["statistics"])
    training = {
        "examples": examples,
        "schema": schema_gen.outputs["schema"],
        "run_fn": "kubeflow_user_module.run_fn",
        "train_args": tfx.proto.TrainArgs(num_steps=30),
        "eval_args": tfx.proto.EvalArgs(num_steps=2),
        "config": config,
    }
    plans, metrics = latest_plans(examples), latest_metrics(examples)
    tuner = InputTuner(**training, previous_plans=plans.outputs["previous_plans"])
    training["input_plan"] = tuner.outputs["input_plan"]
    profiler = MemoryProfiler(**training)
    label = tfx.dsl.experimental.RuntimeParameter(name="run-label", ptype=str, default="first")
    trainer = OptimizedTrainer(
        **training, previous_metrics=metrics.outputs["previous_metrics"], run_label=label
    )
    ledger = latest_ledger(trainer.outputs["perf_metrics"])
    gate = PerfEvaluator(
        model=trainer.outputs["model"],
        perf_metrics=trainer.outputs["perf_metrics"],
        memory_profile=profiler.outputs["memory_profile"],
        ledger=ledger.outputs["ledger"],
        config=config,
    )
    pusher = tfx.components.Pusher(
        model=trainer.outputs["model"],
        infra_blessing=gate.outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=f"{data_path}-serving")
        ),
    )
    return pipeline_of(
        example_gen, statistics_gen, schema_gen, plans, tuner, profiler, metrics, trainer, ledger,
        gate, pusher,
    )  # fmt: skip


def two_components():
    """Returns a pipeline whose second component needs a value of the first."""
    count = tfx.dsl.experimental.RuntimeParameter(name="count", ptype=int, default=3)
    first = Measure(count=count).with_id("first_number")
    return pipeline_of(first, Use(number=first.outputs["number"].future()[0].value, factor=2.0))


def pipeline_of(*nodes, name="small", **arguments):
    return tfx.dsl.Pipeline(
        pipeline_name=name, pipeline_root="/tmp/not-there", components=list(nodes), **arguments
    )


def compiled(pipeline, folder, **settings):
    """Returns the YAML documents that the compiler writes."""
    path = compile_pipeline(
        pipeline, output=pathlib.Path(folder, "pipeline.yaml"), settings={**SETTINGS, **settings}
    )
    return list(yaml.safe_load_all(path.read_text()))
