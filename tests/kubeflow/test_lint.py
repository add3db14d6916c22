import copy

import pytest

pytest.importorskip("kfp", reason="kfp is not installed (extra kfp)")

from tfx_perf.kubeflow import lint  # noqa: E402

TYPE = {"schemaTitle": "tfx.Model", "schemaVersion": "0.0.1"}


def container(**changes):
    return {"container": {"image": "image:1", "command": ["python"], **changes}}


GOOD = {
    "schemaVersion": "2.1.0",
    "pipelineInfo": {"name": "good"},
    "defaultPipelineRoot": "minio://bucket/root",
    "root": {
        "inputDefinitions": {
            "parameters": {"count": {"parameterType": "NUMBER_INTEGER", "defaultValue": 3}}
        },
        "dag": {
            "tasks": {
                "make": {
                    "taskInfo": {"name": "make"},
                    "componentRef": {"name": "comp-make"},
                    "inputs": {"parameters": {"count": {"componentInputParameter": "count"}}},
                },
                "use": {
                    "taskInfo": {"name": "use"},
                    "componentRef": {"name": "comp-use"},
                    "dependentTasks": ["make"],
                    "inputs": {
                        "artifacts": {
                            "model": {
                                "taskOutputArtifact": {
                                    "producerTask": "make", "outputArtifactKey": "model",
                                }
                            }
                        }
                    },
                },
            }
        },
    },
    "components": {
        "comp-make": {
            "executorLabel": "exec-make",
            "inputDefinitions": {"parameters": {"count": {"parameterType": "NUMBER_INTEGER"}}},
            "outputDefinitions": {"artifacts": {"model": {"artifactType": TYPE}}},
        },
        "comp-use": {
            "executorLabel": "exec-use",
            "inputDefinitions": {"artifacts": {"model": {"artifactType": TYPE}}},
        },
    },
    "deploymentSpec": {"executors": {"exec-make": container(), "exec-use": container()}},
}  # fmt: skip
PLATFORM = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": {"exec-use": {}}}}}}
COUNT = "root.inputDefinitions.parameters.count"
USE = "root.dag.tasks.use"
MODEL = f"{USE}.inputs.artifacts.model.taskOutputArtifact"
CONTAINER = "deploymentSpec.executors.exec-use.container"
PLATFORM_EXECUTORS = "platforms.kubernetes.deploymentSpec.executors"


def changed(document, path, value):
    """Returns a copy with another value at a dotted path; None removes what is there."""
    copied = copy.deepcopy(document)
    *folders, last = path.split(".")
    place = copied
    for folder in folders:
        place = place[folder]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return copied


def test_a_good_pipeline_has_no_problems():
    assert lint.problems([GOOD]) == []
    assert lint.problems([GOOD, PLATFORM]) == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("schemaVersion", "2.0.0", "schemaVersion 2.0.0"),
        ("schemaVersion", None, "schemaVersion None"),
        ("pipelineSpec", {}, "PipelineJob"),
        ("pipelineInfo", None, "pipelineInfo.name ''"),
        ("pipelineInfo.name", "No_Good", "pipelineInfo.name 'No_Good'"),
        ("pipelineInfo.name", "a" * 64, "63 at most"),
        ("root", None, "root.dag.tasks is empty"),
        ("root.dag.tasks", {}, "root.dag.tasks is empty"),
        ("components", None, "components is empty"),
        ("deploymentSpec", {}, "deploymentSpec is empty"),
        (f"{USE}.componentRef.name", "comp-other", "no component comp-other"),
        ("components.comp-use.executorLabel", "exec-other", "component comp-use: there is no exec"),
        (f"{USE}.dependentTasks", ["make", "ghost"], "depends on ghost"),
        ("deploymentSpec.executors.exec-use", {"resolver": {}}, "a resolver"),
        ("deploymentSpec.executors.exec-use", {"custom": {}}, "neither container nor importer"),
        (f"{CONTAINER}.image", "", "no image"),
        (f"{CONTAINER}.command", None, "no command"),
        (f"{CONTAINER}.lifecycle", {"preCacheCheck": {}}, "a lifecycle hook"),
        (f"{USE}.taskInfo.name", "Use", "taskInfo.name must be the same"),
        (
            "components.comp-use.inputDefinitions.artifacts.model.artifactType",
            {"instanceSchema": "title: tfx.Model"},
            "model has no schemaTitle",
        ),
        (
            "components.comp-make.outputDefinitions.artifacts.model.artifactType.schemaTitle",
            None,
            "model has no schemaTitle",
        ),
        (f"{USE}.inputs", {}, "model is neither given nor optional"),
        ("components.comp-use.inputDefinitions", {}, "gives model, which its component"),
        (f"{MODEL}.producerTask", "ghost", "model comes from ghost"),
        (f"{USE}.dependentTasks", [], "on which it does not depend"),
        (f"{MODEL}.outputArtifactKey", "other", "has no such output"),
        ("root.inputDefinitions", {}, "parameter count, which is not declared"),
        (f"{COUNT}.parameterType", "INT", "parameterType INT is unknown"),
        (f"{COUNT}.defaultValue", "3", "the default '3' is no NUMBER_INTEGER"),
        (f"{COUNT}.defaultValue", 3.5, "the default 3.5 is no NUMBER_INTEGER"),
        (f"{COUNT}.defaultValue", True, "the default True is no NUMBER_INTEGER"),
        ("root.dag.tasks.make.dependentTasks", ["use"], "wait for each other"),
        ("defaultPipelineRoot", "/home/me", "defaultPipelineRoot /home/me"),
    ],
)
def test_every_rule_finds_its_problem(path, value, problem):
    assert any(problem in found for found in lint.problems([changed(GOOD, path, value)]))


def test_a_task_with_an_underscore_is_found():
    document = copy.deepcopy(GOOD)
    tasks = document["root"]["dag"]["tasks"]
    tasks["use_it"] = {**tasks.pop("use"), "taskInfo": {"name": "use_it"}}
    assert lint.problems([document]) == ["task use_it: only letters, digits and hyphens"]


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("platforms", {}, "no platform spec"),
        (PLATFORM_EXECUTORS, {"exec-ghost": {}}, "about executor exec-ghost"),
        (f"{PLATFORM_EXECUTORS}.exec-use.imagePullPolicy", "Maybe", "imagePullPolicy Maybe"),
    ],
)
def test_the_platform_spec_is_checked(path, value, problem):
    (found,) = lint.problems([GOOD, changed(PLATFORM, path, value)])
    assert problem in found


@pytest.mark.parametrize("documents", [[], [None], ["text"], [GOOD, PLATFORM, PLATFORM]])
def test_a_file_that_is_no_pipeline_is_one_problem(documents):
    assert lint.problems(documents) == [
        "a pipeline is one YAML document, or two with the platform spec"
    ]
