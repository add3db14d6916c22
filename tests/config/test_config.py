"""PerfConfig: defaults, sources, and conversion to and from JSON.

It is read in the same way as every `section`; one of its sections is `compilation`.
"""

import pathlib

import numpy as np
import pytest

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.kubeflow import KubeflowSettings, NodeSettings
from tfx_perf.pipelines.airflow import AirflowSettings


def test_every_key_is_optional():
    assert PerfConfig.from_dict(None) == PerfConfig.from_dict({}) == PerfConfig()


def test_the_outer_key_is_optional():
    inner = {"training": {"seed": 3}, "compilation": {"enabled": False}}
    settings = PerfConfig.from_dict({"tensorflow_optimization": inner})
    assert settings == PerfConfig.from_dict(inner)
    assert settings.training.seed == 3
    assert not settings.compilation.enabled
    assert PerfConfig.from_dict({"tensorflow_optimization": None}) == PerfConfig()


def test_a_section_beside_the_outer_key_is_refused_since_it_would_have_no_effect(tmp_path):
    path = tmp_path / "perf.yaml"
    path.write_text("tensorflow_optimization:\n  training: {seed: 3}\ngate: {reference_run: x}\n")
    message = rf"below tensorflow_optimization in {path}, line 3\. Received: gate, which is beside"
    with pytest.raises(errors.UserError, match=message):
        PerfConfig.from_yaml(path)


def test_of_uses_the_values_it_gets():
    settings = PerfConfig()
    assert PerfConfig.of(settings) is settings
    assert PerfConfig.of({"training": {"margin": 0.5}}).training.margin == 0.5


def test_a_single_number_stands_for_a_list_of_one():
    values = {"training": {"steps_per_execution": 50}, "memory": {"batch_sizes": 8}}
    settings = PerfConfig.from_dict(values)
    assert (settings.training.steps_per_execution, settings.memory.batch_sizes) == ((50,), (8,))


def test_yaml(tmp_path):
    path = tmp_path / "perf.yaml"
    path.write_text("tensorflow_optimization:\n  input: {tuning_seconds: 5}\n")
    assert PerfConfig.from_yaml(path).input.tuning_seconds == 5.0
    path.write_text("")
    assert PerfConfig.from_yaml(path) == PerfConfig()


@pytest.mark.parametrize("outer", ["", "tensorflow_optimization:\n"])
def test_an_error_names_the_line_below_the_outer_key_and_without_it(tmp_path, outer):
    path = tmp_path / "perf.yaml"
    path.write_text(f"{outer}  gate:\n    rules:\n      mfu_ratio: {{min: 0.1}}\n    rulez: x\n")
    line = 4 + len(outer.splitlines())
    with pytest.raises(errors.UserError, match=rf"in {path}, line {line}\. .*gate\.rulez='x'\. D"):
        PerfConfig.from_yaml(path)


def test_a_whole_number_may_be_written_in_common_notations(tmp_path):
    path = tmp_path / "perf.yaml"
    path.write_text("schedule: {expected_runs: 1e2}\ntraining: {checkpoint_every_steps: 60.0}\n")
    found = PerfConfig.from_yaml(path)
    assert (found.schedule.expected_runs, found.training.checkpoint_every_steps) == (100, 60)
    numpys = {"training": {"seed": np.int64(3)}}
    assert PerfConfig.from_dict(numpys).training.seed == 3
    for other in (1.5, True, "2"):
        with pytest.raises(errors.UserError, match="expected_runs"):
            PerfConfig.from_dict({"schedule": {"expected_runs": other}})


def test_a_section_without_keys_has_its_defaults(tmp_path):
    path = tmp_path / "perf.yaml"
    for section in PerfConfig.model_fields:
        path.write_text(f"{section}:\n")
        assert PerfConfig.from_yaml(path) == PerfConfig()
    path.write_text("gate:\n  policy:\n  rules:\n")
    assert PerfConfig.from_yaml(path) == PerfConfig()
    nodes = KubeflowSettings.from_dict({"image": "i", "nodes": {"Trainer": None}}).nodes
    assert nodes["Trainer"] == NodeSettings()


def test_a_path_may_be_one_of_pathlib():
    place = pathlib.Path("/mounted")
    found = PerfConfig.from_dict(
        {"training": {"checkpoint_folder": place}, "gate": {"baseline_uri": place}}
    )
    mounts = [{"name": "shared", "mountPath": "/mounted"}]
    pod = {"spec": {"containers": [{"name": "tensorflow", "volumeMounts": mounts}]}}
    job = {"worker_count": 2, "image": "i", "shared_folder": place, "pod_template": pod}
    with_job = PerfConfig.from_dict({"distribution": {"job": job}})
    assert with_job.distribution.job.shared_folder == "/mounted"
    assert found.training.checkpoint_folder == found.gate.baseline_uri == "/mounted"
    assert PerfConfig.from_json(found.to_json()) == found
    assert AirflowSettings(python=place, python_path=[place]).python_path == ("/mounted",)


@pytest.mark.parametrize("path", ["~/perf", pathlib.Path("~/perf")])
def test_the_home_folder_may_be_abbreviated(path):
    found = PerfConfig.from_dict(
        {"training": {"checkpoint_folder": path}, "gate": {"baseline_uri": path}}
    )
    home = str(pathlib.Path.home() / "perf")
    assert found.training.checkpoint_folder == found.gate.baseline_uri == home


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_is_one_that_numpy_takes(seed):
    with pytest.raises(errors.UserError, match=f"seed={seed}"):
        PerfConfig.from_dict({"training": {"seed": seed}})
