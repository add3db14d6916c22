"""The containers' `entrypoint` under an emulated launcher, on light components.

It makes a `task_run` of what the launcher gives it.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from cluster import ROOT, Cluster
from kubeflow_pipelines import (
    SETTINGS,
    Measure,
    Refused,
    Use,
    compile_pipeline,
    pipeline_of,
)
from tfx import v1 as tfx


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    return Cluster(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def results(cluster):
    """A run with a value handed on, a condition that holds, one that does not, and a retry."""
    factor = tfx.dsl.experimental.RuntimeParameter(name="factor", ptype=float, default=1.0)
    first = Refused()
    flag = first.outputs["model"].future()[0].property("flag")
    with tfx.dsl.Cond(flag == 1):
        taken = Use(
            number=first.outputs["number"].future()[0].value,
            factor=factor,
            fails_without=str(cluster.folder / "marker"),
        )
    with tfx.dsl.Cond(flag == 0):
        skipped = Measure(count=2)
    path = compile_pipeline(
        pipeline_of(first, taken, skipped),
        output=cluster.folder / "pipeline.yaml",
        settings={**SETTINGS, "nodes": {"Use": {"retries": 1}}},
    )
    return cluster.run(path, "run-1", factor=2.0)


@pytest.mark.slow
def test_values_and_parameters_of_the_run_reach_a_component(cluster, results):
    assert results["refused"].values == {"number": 7}
    model = results["use"].artifacts["model"]
    assert model["uri"].startswith(f"{ROOT}/small/run-1/use/")
    assert (cluster.stored(model["uri"]) / "product").read_text() == "14.0"


@pytest.mark.slow
def test_properties_that_the_store_refuses_are_mended_and_paths_in_them_are_uris(results):
    model = results["refused"].artifacts["model"]
    assert model["metadata"]["flag"] == 1
    assert not {"not_a_number", "unset"} & set(model["metadata"])
    assert model["metadata"]["folder"] == model["uri"]


@pytest.mark.slow
def test_an_empty_folder_is_not_in_the_store_and_does_no_harm(cluster, results):
    assert not cluster.stored(results["refused"].artifacts["model"]["uri"]).exists()
    assert results["use"] is not None  # its condition gave it that model


@pytest.mark.slow
def test_a_condition_excludes_one_task_and_another_is_tried_again(results):
    assert results["measure"] is None
    assert results["use"].tries == 2


def test_the_command_of_the_spec_runs_as_it_stands(tmp_path):
    """As `kfp.local` runs it: local paths instead of URIs."""
    path = compile_pipeline(
        pipeline_of(Measure(count=5)), output=tmp_path / "p.yaml", settings=SETTINGS
    )
    spec = next(yaml.safe_load_all(path.read_text()))
    container = spec["deploymentSpec"]["executors"]["exec-measure"]["container"]
    number = tmp_path / "out" / "number"
    executor_input = {
        "inputs": {"parameterValues": {"count": 5}},
        "outputs": {
            "artifacts": {
                "number": {
                    "artifacts": [
                        {
                            "name": "number",
                            "uri": str(number),
                            "type": {"schemaTitle": "tfx.Integer", "schemaVersion": "0.0.1"},
                        }
                    ]
                }
            },
            "outputFile": str(tmp_path / "out" / "executor_output.json"),
        },
    }
    arguments = [
        json.dumps(executor_input) if argument == "{{$}}" else argument
        for argument in container["args"]
    ]
    subprocess.run(
        [sys.executable, *container["command"][1:], *arguments],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)},
        capture_output=True,
    )
    assert number.read_text() == "5"
    written = json.loads((tmp_path / "out" / "executor_output.json").read_text())
    assert written["artifacts"]["number"]["artifacts"][0]["metadata"]["count"] == 5
