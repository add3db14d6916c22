"""Each `component` accepts the arguments of TFX's Trainer, and interprets them in the same way."""

import inspect
import json

import pytest
from tfx import types as tfx_types
from tfx import v1 as tfx
from tfx.components.trainer import component as stock
from tfx.dsl.compiler import compiler
from tfx.dsl.components.common import importer
from tfx.types import standard_artifacts

from tfx_perf.components import InputTuner, MemoryProfiler, OptimizedTrainer, training_component
from tfx_perf.config import PerfConfig
from tfx_perf.core import cache_key, errors

pytestmark = pytest.mark.each_choice

COMPONENTS = [InputTuner, MemoryProfiler, OptimizedTrainer]
PROPERTIES = ("module_file", "module_path", "run_fn", "train_args", "eval_args", "custom_config")


def parameter(name, default=None):
    return tfx.dsl.experimental.RuntimeParameter(name=name, ptype=str, default=default)


ARGUMENTS = {
    "run_fn": {"run_fn": "package.module.run_fn", "custom_config": {"rate": 0.1, "names": ["a"]}},
    "run_fn of the run": {"run_fn": parameter("code", "package.module.run_fn")},
    "module_file of the run": {"module_file": parameter("file", "module.py")},
    "custom_config of the run": {"run_fn": "a.b", "custom_config": parameter("custom", "{}")},
    "a part of custom_config": {"run_fn": "a.b", "custom_config": {"rate": parameter("rate")}},
    "train_args of the run": {
        "run_fn": "a.b",
        "train_args": parameter("train", '{"num_steps": 5}'),
        "eval_args": parameter("eval", "{}"),
    },
}


def compiled(component, arguments, folder):
    """Returns the execution properties in the compiled pipeline."""
    examples = importer.Importer(str(folder), standard_artifacts.Examples).with_id("examples")
    node = component(examples=examples.outputs["result"], **arguments)
    pipeline = tfx.dsl.Pipeline("neutral", str(folder / "root"), components=[examples, node])
    (found,) = [
        each.pipeline_node
        for each in compiler.Compiler().compile(pipeline).nodes
        if each.pipeline_node.node_info.id == node.id
    ]
    values = found.parameters.parameters
    return {key: values[key].SerializeToString() for key in PROPERTIES if key in values}


@pytest.mark.parametrize("component", COMPONENTS)
def test_gate_settings_are_no_property_that_invalidates_the_cache(component):
    examples = tfx_types.Channel(type=standard_artifacts.Examples)
    gate = {"price_per_hour": 3.67, "rules": {"mfu_ratio": {"min": 0.1}}}
    plain, priced = (
        component(examples=examples, run_fn="a.b", config=config).exec_properties["config"]
        for config in ({}, {"gate": gate})
    )
    assert plain == priced


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_the_compiled_properties_are_trainers(component, arguments, tmp_path):
    expected = compiled(stock.Trainer, arguments, tmp_path)
    assert expected
    assert compiled(component, arguments, tmp_path) == expected


def test_one_dictionary_is_the_training_of_all_of_them():
    kinds = {
        "examples": standard_artifacts.Examples,
        "transform_graph": standard_artifacts.TransformGraph,
        "schema": standard_artifacts.Schema,
        "base_model": standard_artifacts.Model,
        "hyperparameters": standard_artifacts.HyperParameters,
    }
    channels = {name: tfx_types.Channel(type=kind) for name, kind in kinds.items()}
    training = {
        **channels,
        "run_fn": "package.module.run_fn",
        "train_args": tfx.proto.TrainArgs(num_steps=7),
        "train_steps": 9,
        "eval_args": tfx.proto.EvalArgs(num_steps=3),
        "custom_config": {"rate": 0.1},
        "config": {"training": {"precision": "mixed_bfloat16"}},
    }
    tuner = InputTuner(**training)
    assert tuner.inputs.keys() == channels.keys()
    training["input_plan"] = channels["input_plan"] = tuner.outputs["input_plan"]
    for node in (MemoryProfiler(**training), OptimizedTrainer(**training)):
        assert dict(node.inputs.items()) == channels
    for node in (tuner, MemoryProfiler(**training), OptimizedTrainer(**training)):
        assert node.exec_properties["train_steps"] == 9
        assert json.loads(node.exec_properties["custom_config"]) == {"rate": 0.1}


@pytest.mark.parametrize(
    ("component", "outputs", "config"),
    [
        (
            InputTuner,
            {"input_plan": "tfx_perf.InputPlan"},
            {
                "input": {"batch_size": 64},
                "training": {"precision": "float32", "excluded_speedups": ("inexact",)},
            },
        ),
        (
            MemoryProfiler,
            {"memory_profile": "tfx_perf.MemoryProfile"},
            {"memory": {"batch_sizes": (64,)}},
        ),
        (
            OptimizedTrainer,
            {"model": "Model", "model_run": "ModelRun", "perf_metrics": "tfx_perf.PerfMetrics"},
            {"training": {"seed": 3}, "monitoring": {"metrics_port": 9090}},
        ),
    ],
)
def test_outputs_and_their_defaults(component, outputs, config):
    examples = tfx_types.Channel(type=standard_artifacts.Examples)
    node = component(examples=examples, run_fn="a.b", config=config)
    assert {key: value.type_name for key, value in node.outputs.items()} == outputs
    settings = PerfConfig.from_json(node.exec_properties["config"]).model_dump()
    for section, given in config.items():
        assert settings[section].items() >= given.items()


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_function_of_the_script_is_refused_in_one_line(component):
    with pytest.raises(errors.UserError, match=r"run_fn=__main__\.run_fn\. Move it"):
        component(
            examples=tfx_types.Channel(type=standard_artifacts.Examples), run_fn="__main__.run_fn"
        )
    with pytest.raises(errors.UserError, match=r"__main__\.run_fn"):
        cache_key.of_source("__main__.run_fn")


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"module_file": "a.py", "run_fn": "b.run_fn"}, errors.UserError, "exactly one of"),
        ({"run_fn": "a.b", "config": {"trainig": {}}}, errors.UserError, "trainig"),
        ({"run_fn": "a.b", "shema": None}, TypeError, "unexpected keyword argument 'shema'"),
    ],
)
def test_wrong_arguments_are_refused_when_the_pipeline_is_built(component, arguments, error, words):
    with pytest.raises(error, match=words):
        component(examples=tfx_types.Channel(type=standard_artifacts.Examples), **arguments)


def test_all_but_the_tuner_need_a_module():
    examples = tfx_types.Channel(type=standard_artifacts.Examples)
    InputTuner(examples=examples)
    for component in (MemoryProfiler, OptimizedTrainer):
        with pytest.raises(errors.UserError, match="exactly one of module_file and run_fn"):
            component(examples=examples, module_file="")


@pytest.mark.parametrize("component", COMPONENTS)
def test_all_arguments_are_in_the_signature(component):
    parameters = inspect.signature(component).parameters
    shared = training_component.TrainingArguments.__annotations__
    assert shared.keys() < parameters.keys()
    required = [each.name for each in parameters.values() if each.default is each.empty]
    assert required == ["examples"]
