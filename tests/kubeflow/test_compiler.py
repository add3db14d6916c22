"""The pipeline that a server gets: its `spec`, with what `kubeflow.settings` say of containers.

Reports come beside the artifacts.
"""

import json

import pytest
from kubeflow_pipelines import (
    SETTINGS,
    Measure,
    compiled,
    four_components,
    pipeline_of,
    two_components,
)
from tfx import v1 as tfx
from tfx.dsl.components.common import resolver

from tfx_perf.components import PerfEvaluator, types
from tfx_perf.core import errors
from tfx_perf.kubeflow import KubeflowSettings, compile_pipeline, lint, notes

OURS = {
    "input-tuner": "input_plan",
    "memory-profiler": "memory_profile",
    "optimized-trainer": "perf_metrics",
    "perf-evaluator": "evaluation",
}
_TOLERATION = {
    "key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60
}  # fmt: skip


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    folder, pipeline = tmp_path_factory.mktemp("four"), four_components()
    nodes = [node.id for node in pipeline.components]
    (spec,) = compiled(pipeline, folder)
    assert [node.id for node in pipeline.components] == nodes  # it is left as it was
    lint.read(folder / "pipeline.yaml")
    return spec


def tasks(spec):
    return spec["root"]["dag"]["tasks"]


def container(spec, name):
    return spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]


def test_names_are_those_that_argo_takes(four):
    assert set(tasks(four)) == {
        "csv-example-gen", "statistics-gen", "schema-gen", *OURS, "pusher",
    }  # fmt: skip
    assert {f"comp-{name}" for name in tasks(four)} == set(four["components"])
    assert {f"exec-{name}" for name in tasks(four)} == set(four["deploymentSpec"]["executors"])


def test_resolved_inputs_are_gone_and_the_others_stay(four):
    assert "previous_plans" not in json.dumps(four)
    evaluator = tasks(four)["perf-evaluator"]
    assert set(evaluator["inputs"]["artifacts"]) == {"model", "perf_metrics", "memory_profile"}
    assert evaluator["dependentTasks"] == ["memory-profiler", "optimized-trainer"]


def test_artifact_types_go_by_their_names_and_there_are_outputs_that_the_ui_shows(four):
    assert "instanceSchema" not in json.dumps(four)
    shown = {"report": "system.HTML", "figures": "system.Metrics", "summary": "system.Markdown"}
    for node, key in OURS.items():
        outputs = four["components"][f"comp-{node}"]["outputDefinitions"]["artifacts"]
        kinds = {name: each["artifactType"] for name, each in outputs.items()}
        assert {name: kinds[f"{key}_{name}"]["schemaTitle"] for name in shown} == shown
        if key == "perf_metrics":
            title = {"schemaTitle": "tfx_perf.PerfMetrics", "schemaVersion": "0.0.1"}
            assert kinds[key] == title


def test_containers_run_our_entrypoint_with_the_declared_types_and_drivers(four):
    trainer = container(four, "optimized-trainer")
    assert trainer["command"] == ["python", "-m", "tfx_perf.kubeflow.entrypoint"]
    arguments = trainer["args"]
    inputs = json.loads(arguments[arguments.index("--json_serialized_inputs_spec_args") + 1])
    assert inputs == four["components"]["comp-optimized-trainer"]["inputDefinitions"]
    assert "{{$}}" in arguments
    arguments = {name: container(four, name)["args"] for name in tasks(four)}
    driven = [name for name, given in arguments.items() if "--example_gen_driver" in given]
    assert driven == ["csv-example-gen"]
    assert "lifecycle" not in container(four, "csv-example-gen")


def test_parameters_of_the_run_keep_their_defaults(four):
    assert four["root"]["inputDefinitions"]["parameters"] == {
        "run-label": {"parameterType": "STRING", "defaultValue": "first"}
    }


def test_a_dynamic_property_names_its_producer_and_type(tmp_path):
    (spec,) = compiled(two_components(), tmp_path)
    source = tasks(spec)["use"]["inputs"]["parameters"]["number"]
    assert source == {
        "taskOutputParameter": {"producerTask": "first-number", "outputParameterKey": "number"}
    }
    inputs = spec["components"]["comp-use"]["inputDefinitions"]["parameters"]
    assert inputs["number"] == {"parameterType": "NUMBER_INTEGER"}
    lint.read(tmp_path / "pipeline.yaml")


def test_a_condition_becomes_an_expression(tmp_path):
    first = Measure(count=3)
    with tfx.dsl.Cond(first.outputs["number"].future()[0].property("count") == 3):
        second = Measure(count=4).with_id("second")
    (spec,) = compiled(pipeline_of(first, second), tmp_path)
    condition = tasks(spec)["second"]["triggerPolicy"]["condition"]
    value = "inputs.artifacts['_Measure.number'].artifacts[0].metadata['count']"
    assert condition == f"({value} == 3.0)"


def test_settings_reach_the_containers(tmp_path):
    spec, platform = compiled(
        two_components(),
        tmp_path,
        defaults={"cpu_limit": 2, "environment": {"A": "all", "B": "all"}},
        nodes={
            "Use": {
                "image": "example/gpu:1", "cpu_request": "500m", "memory_limit": "8Gi",
                "accelerator": "nvidia.com/gpu", "accelerator_count": 1,
                "node_selector": {"pool": "gpu"}, "tolerations": [_TOLERATION],
                "environment": {"B": "use"}, "secret_environment": {"TOKEN": "store/token"},
                "secret_volumes": {"/secrets": "store"}, "volumes": {"/ledger": "perf-ledger"},
                "pod_labels": {"tfx-perf/metrics": "true"},
                "pod_annotations": {"prometheus.io/port": "9090"},
                "image_pull_policy": "Always", "image_pull_secrets": ["registry"],
                "retries": 2, "cache": True,
            }
        },
    )  # fmt: skip
    use = container(spec, "use")
    assert use["image"] == "example/gpu:1"
    assert use["resources"] == {
        "cpuRequest": 0.5,
        "cpuLimit": 2.0,
        "memoryLimit": pytest.approx(8.589934592),
        "accelerator": {"type": "nvidia.com/gpu", "count": "1"},
    }
    assert use["env"] == [{"name": "A", "value": "all"}, {"name": "B", "value": "use"}]
    assert container(spec, "first-number")["resources"] == {"cpuLimit": 2.0}
    assert tasks(spec)["use"]["retryPolicy"]["maxRetryCount"] == 2
    assert tasks(spec)["use"]["cachingOptions"] == {"enableCache": True}
    assert platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"] == {
        "exec-use": {
            "nodeSelector": {"labels": {"pool": "gpu"}},
            "tolerations": [_TOLERATION],
            "secretAsEnv": [
                {"secretName": "store", "keyToEnv": [{"secretKey": "token", "envVar": "TOKEN"}]}
            ],
            "secretAsVolume": [{"secretName": "store", "mountPath": "/secrets"}],
            "pvcMount": [{"constant": "perf-ledger", "mountPath": "/ledger"}],
            "podMetadata": {
                "labels": {"tfx-perf/metrics": "true"},
                "annotations": {"prometheus.io/port": "9090"},
            },
            "imagePullPolicy": "Always",
            "imagePullSecret": [{"secretName": "registry"}],
        }
    }
    lint.read(tmp_path / "pipeline.yaml")


def _badly_named():
    return pipeline_of(Measure(count=1), name="No_Good")


def _needs_a_resolver():
    metrics = resolver.Resolver(
        strategy_class=tfx.dsl.experimental.LatestArtifactStrategy,
        metrics=tfx.dsl.Channel(type=types.PerfMetrics),
    ).with_id("latest")
    model = tfx.components.ImportExampleGen(input_base="data")
    trainer = tfx.components.Trainer(
        run_fn="a.run_fn", examples=model.outputs["examples"],
        train_args=tfx.proto.TrainArgs(), eval_args=tfx.proto.EvalArgs(),
    )  # fmt: skip
    gate = PerfEvaluator(model=trainer.outputs["model"], perf_metrics=metrics.outputs["metrics"])
    return pipeline_of(model, trainer, metrics, gate)


def _lacks_a_node():
    gen = tfx.components.CsvExampleGen(input_base="/data")
    return pipeline_of(tfx.components.StatisticsGen(examples=gen.outputs["examples"]))


def _has_a_module_file():
    trainer = tfx.components.Trainer(
        module_file=__file__,
        examples=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Examples),
        train_args=tfx.proto.TrainArgs(), eval_args=tfx.proto.EvalArgs(),
    )  # fmt: skip
    return pipeline_of(trainer)


def _condition_on_a_value():
    first = Measure(count=3)
    with tfx.dsl.Cond(first.outputs["number"].future()[0].value == 3):
        second = Measure(count=4).with_id("second")
    return pipeline_of(first, second)


@pytest.mark.parametrize(
    ("make", "settings", "received"),
    [
        (_badly_named, {}, "pipeline_name=No_Good. Try no-good"),
        (two_components, {"output": "a.json"}, "ends in .yaml"),
        (two_components, {"image": ""}, "image=''"),
        (two_components, {"imagE": "x"}, "imagE='x'"),
        (two_components, {"nodes": {"Uze": {}}}, "nodes.Uze. Did you mean Use?"),
        (two_components, {"pipeline_root": "/home/me"}, "pipeline_root=/home/me"),
        (two_components, {"defaults": {"memory_limit": "8 gigs"}}, "memory_limit='8 gigs'"),
        (two_components, {"defaults": {"accelerator": "gpu"}}, "accelerator_count"),
        (two_components, {"defaults": {"volumes": {"data": "x"}}}, "absolute folders"),
        (two_components, {"defaults": {"secret_environment": {"A": "b"}}}, "secret/key"),
        (two_components, {"defaults": {"pod_labels": {"a": "not one"}}}, "pod_labels.a='not one'"),
        (two_components, {"target": "vertex"}, "target='vertex'. This setting was removed. Le"),
        (_needs_a_resolver, {}, "PerfEvaluator.perf_metrics from the resolver latest"),
        (_lacks_a_node, {}, "StatisticsGen.examples from CsvExampleGen, which is not in the"),
        (_has_a_module_file, {}, "Trainer with module_file="),
        (_condition_on_a_value, {}, "artifact_value_op"),
    ],
)  # fmt: skip
def test_a_pipeline_that_kubeflow_refuses_is_one_clear_line(make, settings, received, tmp_path):
    output = tmp_path / "folder" / settings.pop("output", "pipeline.yaml")
    with pytest.raises(errors.UserError) as raised:
        compile_pipeline(make(), output=output, settings={**SETTINGS, **settings})
    assert received in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not output.parent.exists()


def _notes(pipeline, **settings):
    return notes.notes(pipeline, KubeflowSettings.of({**SETTINGS, **settings}))


def test_features_that_a_run_will_lack_are_logged_a_line_each(tmp_path, caplog):
    pipeline = four_components("/home/me/data", gate={"baseline_uri": "/home/me/ledger"})
    compiled(pipeline, tmp_path)
    said = [each.getMessage() for each in caplog.records if each.name.startswith("tfx_perf")]
    assert said == _notes(pipeline)
    assert not any("\n" in line for line in said)
    resolvers, paths = said[:3], said[3:]
    for line, words in zip(
        resolvers,
        ["InputTuner.previous_plans stays empty, and it searches again",
         "PerfEvaluator.ledger stays empty.",
         "OptimizedTrainer.previous_metrics stays empty, and it tunes again"],
        strict=True,
    ):  # fmt: skip
        assert "is dropped, since Kubeflow has no resolvers" in line
        assert words in line
    for line, words in zip(
        paths,
        ["CsvExampleGen looks for input_base=/home/me/data in its pod",
         "PerfEvaluator looks for config.gate.baseline_uri=/home/me/ledger in its pod",
         "Pusher looks for push_destination.filesystem.base_directory=/home/me/data-serving"],
        strict=True,
    ):  # fmt: skip
        assert words in line
        assert "mount a volume there (nodes." in line


def test_what_a_pod_sees_is_not_noted_and_a_gate_without_a_ledger_is():
    assert any("gate.baseline_uri" in line for line in _notes(four_components()))
    mounted = {"defaults": {"volumes": {"/home/me": "claim"}}}
    pipeline = four_components("/home/me/data", gate={"baseline_uri": "s3://bucket/ledger"})
    said = _notes(pipeline, **mounted)
    assert len(said) == 3  # of the resolvers
    assert not any("gate.baseline_uri" in line for line in said)
    gen = tfx.components.CsvExampleGen(input_base="gs://bucket/data")
    assert _notes(pipeline_of(gen)) == []
    gen = tfx.components.CsvExampleGen(input_base="gs://bucket/data")
    (line,) = _notes(pipeline_of(gen), pipeline_root=None)
    assert line.startswith("pipeline_root=/tmp/not-there is dropped")


def test_an_input_of_a_node_outside_of_the_pipeline_is_named(tmp_path, caplog):
    pipeline = four_components("gs://bucket/data")
    pipeline.components = [node for node in pipeline.components if node.id != "InputTuner"]
    (spec,) = compiled(pipeline, tmp_path)
    assert "input_plan" not in tasks(spec)["optimized-trainer"]["inputs"]["artifacts"]
    for name in ("MemoryProfiler", "OptimizedTrainer"):
        line = f"{name}.input_plan stays empty, since InputTuner is not in the pipeline."
        assert any(message.startswith(line) for message in caplog.messages)
