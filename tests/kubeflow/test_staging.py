import pathlib

import pytest

from tfx_perf.kubeflow.staging import Invocation, Staging


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("minio://bucket/a/b", "/minio/bucket/a/b"),
        ("s3://bucket/a", "/s3/bucket/a"),
        ("gs://bucket", "/gcs/bucket"),
    ],
)
def test_a_uri_has_a_folder_and_back(uri, path):
    assert Staging().path(uri) == path
    assert Staging().uri(path) == uri


@pytest.mark.parametrize(
    "value", ["", "text", "/", "/minio", "/data/a", "minio", "relative/minio/a", "oci://image"]
)
def test_anything_else_stays_as_it_is(value):
    assert Staging().path(value) == value
    assert Staging().uri(value) == value


def test_uris_inside_of_properties_are_translated_too(tmp_path):
    staging = Staging(tmp_path)
    value = {"uris": ["s3://b/1", 2], "other": {"text": "a", "number": 1.5}}
    staged = staging.staged(value)
    assert staged["uris"] == [f"{tmp_path}/s3/b/1", 2]
    assert staging.restored(staged) == value


def executor_input():
    metadata = {
        "splits": {"list": ["a"]}, "more": {"struct": {"key": 1}}, "list": {"list": 1, "other": 2},
        "nothing": None,
    }  # fmt: skip
    model = {
        "name": "1", "uri": "s3://bucket/root/taxi/run-7/train/1/model",
        "type": {"instanceSchema": ""}, "metadata": metadata,
    }  # fmt: skip
    outputs = {
        key: {"artifacts": [{"name": key, "uri": f"{ROOT}/{key}", "type": kind}]}
        for key, kind in OUTPUTS.items()
    }
    return {
        "inputs": {"artifacts": {"model": {"artifacts": [model]}, "empty": {"artifacts": []}}},
        "outputs": {"artifacts": outputs, "outputFile": "/tmp/outputs.json"},
    }


ROOT = "s3://bucket/root/taxi/run-7/push/2"
OUTPUTS = {
    "pushed": {"schemaTitle": "tfx.PushedModel"},
    "report": {"schemaTitle": "system.HTML"},
    "executor-logs": {"instanceSchema": "title: system.Artifact"},
}
INPUTS_SPEC = {"artifacts": {"model": {"artifactType": {"schemaTitle": "tfx.Model"}}}}


@pytest.fixture
def invocation():
    return Invocation(executor_input(), INPUTS_SPEC, Staging())


def test_inputs_get_their_types_local_paths_and_properties_but_for_what_was_not_given(invocation):
    inputs = invocation.executor_input(pathlib.Path("x"))["inputs"]["artifacts"]
    assert set(inputs) == {"model"}
    (model,) = inputs["model"]["artifacts"]
    assert model["type"] == {"schemaTitle": "tfx.Model"}
    assert model["uri"] == "/s3/bucket/root/taxi/run-7/train/1/model"
    assert model["metadata"] == {
        "splits": ["a"], "more": {"key": 1}, "list": {"list": 1, "other": 2},
    }  # fmt: skip


def test_outputs_for_the_ui_are_kept_from_tfx(invocation):
    given = invocation.executor_input(pathlib.Path("here.json"))["outputs"]
    assert set(given["artifacts"]) == {"pushed"}
    assert given["outputFile"] == "here.json"
    assert set(invocation.ui_outputs) == {"report", "executor-logs"}
    assert invocation.output_file == "/tmp/outputs.json"


def test_the_run_is_named_by_the_folder_below_the_pipelines(invocation):
    assert invocation.run_id("taxi") == "run-7"
    assert invocation.run_id("other") is None
    assert invocation.run_id("root") is None
