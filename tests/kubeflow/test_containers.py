"""The whole pipeline in real containers, through the kfp SDK's own local runner.

Needs an image made with kubeflow/Dockerfile in which `kubeflow_user_module` is installed, and an
engine that speaks Docker's API; docs/kubernetes.md says how to make both without a daemon.
"""

import functools
import json
import os
import pathlib

import pytest
from kubeflow_pipelines import compile_pipeline, four_components
from test_four_components import CHEAP, gate_settings, write_data

docker = pytest.importorskip("docker", reason="the Python package docker is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # sixteen containers

IMAGE_VARIABLE = "TFX_PERF_TEST_IMAGE"


@pytest.fixture
def image():
    image = os.environ.get(IMAGE_VARIABLE)
    if not image:
        pytest.skip(f"{IMAGE_VARIABLE} names no image made with kubeflow/Dockerfile")
    try:
        docker.from_env().ping()
    except Exception as error:  # docker-py has many for this
        pytest.skip(f"no container engine answers: {error}")
    return image


@pytest.fixture
def folder(tmp_path):
    """The only folder that the containers share; they run as another user."""
    os.umask(0)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o777)
    write_data(tmp_path / "data")
    return tmp_path


def _run(folder, image, name, gate):
    from kfp import components

    path = compile_pipeline(
        four_components(folder / "data", **CHEAP, gate=gate),
        output=folder / f"{name}.yaml",
        settings={"image": image},
    )
    components.load_component_from_file(str(path))(**{"run-label": name})
    runs = folder.glob("small-*")
    newest = max(runs, key=lambda run: run.stat().st_mtime)
    (evaluation,) = newest.rglob("evaluation.json")
    return newest, json.loads(evaluation.read_text())


def test_two_runs_in_containers(image, folder, monkeypatch):
    from docker.models import containers
    from kfp import local

    # The SDK cannot be told which network to use; a rootless engine may have no bridge.
    on_host = functools.partialmethod(containers.ContainerCollection.run, network_mode="host")
    monkeypatch.setattr(containers.ContainerCollection, "run", on_host)
    local.init(runner=local.DockerRunner(), pipeline_root=str(folder), raise_on_error=True)
    gate = gate_settings(folder / "ledger")
    first_folder, first = _run(folder, image, "first", gate)
    assert first["baseline_runs"] == []
    assert list(first_folder.rglob("perf_metrics_report"))
    assert len(list(pathlib.Path(f"{folder}/data-serving").iterdir())) == 1
    refusing = gate_settings(folder / "ledger", examples_per_second={"min": 1e12})
    _, second = _run(folder, image, "second", refusing)
    assert len(second["baseline_runs"]) == 1
    assert len(list(pathlib.Path(f"{folder}/data-serving").iterdir())) == 1
