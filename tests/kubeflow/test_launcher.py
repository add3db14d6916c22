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
from kubeflow_pipelines import SETTINGS, Measure, Refused, Use, compile_pipeline, pipeline_of
from tfx import v1 as tfx

from tests import processes


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
def test_a_run_with_a_value_handed_on_conditions_and_a_retry(cluster, results):
    assert results["refused"].values == {"number": 7}
    used, refused = results["use"], results["refused"].artifacts["model"]
    assert used.artifacts["model"]["uri"].startswith(f"{ROOT}/small/run-1/use/")
    assert (cluster.stored(used.artifacts["model"]["uri"]) / "product").read_text() == "14.0"
    # What the store refuses is mended, and paths in properties are URIs.
    assert refused["metadata"]["flag"] == 1
    assert not {"not_a_number", "unset"} & set(refused["metadata"])
    assert refused["metadata"]["folder"] == refused["uri"]
    # An empty folder is not in the store, and does no harm: the condition gave it that model.
    assert not cluster.stored(refused["uri"]).exists()
    assert results["measure"] is None
    assert used.tries == 2


@pytest.mark.slow
def test_the_command_of_the_spec_runs_unchanged(tmp_path):
    """As `kfp.local` runs it: local paths instead of URIs."""
    path = compile_pipeline(
        pipeline_of(Measure(count=5)), output=tmp_path / "p.yaml", settings=SETTINGS
    )
    spec = next(yaml.safe_load_all(path.read_text()))
    container = spec["deploymentSpec"]["executors"]["exec-measure"]["container"]
    number = tmp_path / "out" / "number"
    kind = {"schemaTitle": "tfx.Integer", "schemaVersion": "0.0.1"}
    executor_input = {
        "inputs": {"parameterValues": {"count": 5}},
        "outputs": {
            "artifacts": {
                "number": {"artifacts": [{"name": "number", "uri": str(number), "type": kind}]}
            },
            "outputFile": str(tmp_path / "out" / "executor_output.json"),
        },
    }
    arguments = [
        json.dumps(executor_input) if argument == "{{$}}" else argument
        for argument in container["args"]
    ]
    path = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
    command = [*container["command"][1:], *arguments]
    processes.python(*command, check=True, cwd=tmp_path, environment={"PYTHONPATH": path})
    assert number.read_text() == "5"
    written = json.loads((tmp_path / "out" / "executor_output.json").read_text())
    assert written["artifacts"]["number"]["artifacts"][0]["metadata"]["count"] == 5


FORKS = """
import os
from tfx_perf.kubeflow import entrypoint
from tfx_perf.components import early_imports
from tfx_perf.isolate import forks

def begin(name):
    print(forks.may_fork(), flush=True)
    os._exit(0)

entrypoint.Invocation = entrypoint.Staging = lambda *given: None
early_imports.begin = begin
specs = ("invocation_args", "inputs_spec_args")
entrypoint.run([
    "--executor_class_path=x", "--pipeline_name=p", "--node_id=n",
    *(f"--json_serialized_{name}={{}}" for name in specs),
])
"""


def test_children_of_a_container_need_not_import_tfx_once_more():
    done = subprocess.run(
        [sys.executable, "-c", FORKS], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == "True\n"
