"""What a run may set, and what the compiled pipeline makes of it."""

import pytest
import tensorflow_model_analysis as tfma
from tfx import v1 as tfx
from tfx.dsl.compiler import compiler
from tfx.proto.orchestration import executable_spec_pb2, pipeline_pb2

from tfx_perf.components import trainer_args
from tfx_perf.core import errors
from tfx_perf.pipelines import local_runner, parameters
from tfx_perf.pipelines.training_pipeline import TrainingCode, create_pipeline

_TRAINING_NODES = ("InputTuner", "MemoryProfiler", "OptimizedTrainer")
_BEAM_NODES = ("StatisticsGen", "Transform", "Evaluator")
_BEAM_ARGS = ["--runner=DirectRunner", "--direct_num_workers=2"]


def _pipeline(**arguments) -> tfx.dsl.Pipeline:
    return create_pipeline(
        pipeline_name="neutral",
        pipeline_root="root",
        data_path="data",
        # Any importable functions: only their sources are looked at.
        code=TrainingCode(
            preprocessing_fn="tfx_perf.core.errors.f",
            run_fn="tfx_perf.core.errors.f",
            train_steps=1000,
            eval_steps=10,
        ),  # fmt: skip
        eval_config=tfma.EvalConfig(),
        serving_model_dir="serving",
        **arguments,
    )


@pytest.fixture
def compiled() -> pipeline_pb2.Pipeline:
    return compiler.Compiler().compile(_pipeline(beam_pipeline_args=_BEAM_ARGS))


def _steps(compiled: pipeline_pb2.Pipeline) -> dict[str, int]:
    nodes = {node.pipeline_node.node_info.id: node.pipeline_node for node in compiled.nodes}
    return {
        name: nodes[name].parameters.parameters["train_steps"].field_value.int_value
        for name in _TRAINING_NODES
    }


def test_steps_and_root_can_be_set(compiled):
    assert parameters.declared(compiled) == {"train_steps": int, "pipeline-root": str}


@pytest.mark.parametrize(("values", "expected"), [({}, 1000), ({"train_steps": "7"}, 7)])
def test_every_training_node_gets_the_steps(compiled, values, expected):
    parameters.bind(compiled, values)
    assert _steps(compiled) == dict.fromkeys(_TRAINING_NODES, expected)


def test_the_root_of_the_artifacts_is_set(compiled):
    parameters.bind(compiled, {"pipeline-root": "elsewhere"})
    assert compiled.runtime_spec.pipeline_root.field_value.string_value == "elsewhere"


@pytest.mark.parametrize(
    ("values", "received"),
    [
        ({"train_setps": 7}, "parameter=train_setps"),
        ({"train_steps": "many"}, "train_steps=many"),
        ({"train_steps": 3.7}, "train_steps=3.7"),
        ({"pipeline-run-id": "mine"}, "parameter=pipeline-run-id"),
    ],
)
def test_wrong_values_are_refused(compiled, values, received):
    with pytest.raises(errors.UserError, match=received):
        parameters.bind(compiled, values)


def test_steps_go_into_the_arguments_of_training():
    given = {"train_args": '{"splits": ["train"], "num_steps": 1000}', "train_steps": 7}
    assert trainer_args.with_train_steps({"train_args": given["train_args"]}) == {
        "train_args": given["train_args"]
    }
    resolved = trainer_args.with_train_steps(given)
    assert set(resolved) == {"train_args"}
    assert '"num_steps": 7' in resolved["train_args"]
    assert '"train"' in resolved["train_args"]


def test_no_steps_at_all_are_refused():
    with pytest.raises(errors.UserError, match="train_steps=0"):
        trainer_args.with_train_steps({"train_args": "{}", "train_steps": 0})


@pytest.mark.parametrize("data_format", ["csv", "tfrecord"])
def test_data_heavy_steps_get_beam_arguments(data_format):
    pipeline = compiler.Compiler().compile(
        _pipeline(data_format=data_format, beam_pipeline_args=_BEAM_ARGS)
    )
    config = pipeline_pb2.IntermediateDeploymentConfig()
    pipeline.deployment_config.Unpack(config)
    carried = {}
    for node, packed in config.executor_specs.items():
        spec = executable_spec_pb2.BeamExecutableSpec()
        if packed.Unpack(spec):
            carried[node] = [
                text.value.string_value for text in spec.beam_pipeline_args_placeholders
            ]
    assert {"CsvExampleGen", "ImportExampleGen"} & set(carried)
    assert set(_BEAM_NODES) <= set(carried)
    for node, given in carried.items():
        assert given[:2] == _BEAM_ARGS, node


def test_unknown_data_format_is_refused():
    with pytest.raises(errors.UserError, match="data_format=parquet"):
        _pipeline(data_format="parquet")


def test_local_run_without_metadata_is_refused():
    with pytest.raises(errors.UserError, match="metadata_connection_config=None"):
        local_runner.run(_pipeline())
