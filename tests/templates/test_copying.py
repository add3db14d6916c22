"""A project is copied whole or not at all."""

import pathlib
import runpy

import pytest

from tfx_perf.core import errors
from tfx_perf.templates import copying

_ROOT = pathlib.Path(__file__).parents[2]


def _copy(destination: pathlib.Path, *, name: str = "my-orders") -> list[pathlib.Path]:
    return copying.copy_project(copying.PERF, pipeline_name=name, destination=destination)


def test_every_file_is_there_and_knows_its_name(tmp_path):
    destination = tmp_path / "deep" / "project"
    files = _copy(destination)
    found = {str(path.relative_to(destination)) for path in files}
    assert {
        ".gitignore", ".dockerignore", ".github/workflows/ci.yml", "Dockerfile", "README.md",
        "airflow_runner.py", "kubeflow_runner.py", "local_runner.py", "perf.yaml",
        "data/orders.csv", "models/model.py", "pipeline/training_pipeline.py",
        "tests/test_model.py",
    } <= found  # fmt: skip
    assert not any("{{PIPELINE_NAME}}" in path.read_text() for path in files)
    assert 'PIPELINE_NAME = "my-orders"' in (destination / "pipeline" / "configs.py").read_text()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["project"]


def test_an_empty_folder_will_do(tmp_path):
    assert _copy(tmp_path)


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a b", "ä", "x" * 64, "a\n"])
def test_a_name_that_cannot_be_one_is_refused(tmp_path, name):
    with pytest.raises(errors.UserError, match="pipeline_name="):
        _copy(tmp_path / "project", name=name)
    assert not any(tmp_path.iterdir())


def test_existing_files_are_left_alone(tmp_path):
    (tmp_path / "mine.py").write_text("precious")
    for destination in (tmp_path, tmp_path / "mine.py"):
        with pytest.raises(errors.UserError, match="destination_path="):
            _copy(destination)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.UserError, match="Not a directory"):
        _copy(tmp_path / "file" / "project")


def test_nothing_is_left_of_a_copy_that_failed(tmp_path, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "rename", full)
    with pytest.raises(errors.UserError, match="No space left"):
        _copy(tmp_path / "project")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("template", ["taxi", "perf-addon"])
def test_unknown_templates_are_refused(tmp_path, template):
    with pytest.raises(errors.UserError, match=f"model={template}. .* `tfx-perf addon PROJECT`"):
        copying.copy_project(template, pipeline_name="x", destination=tmp_path / "project")
    assert not any(tmp_path.iterdir())


def test_the_data_are_those_that_the_script_makes(tmp_path):
    project = _ROOT / "templates" / "perf"
    script = runpy.run_path(str(project / "make_data.py"))
    script["write_csv"](script["rows"](3000), tmp_path / "orders.csv")
    expected = (project / "data" / "orders.csv").read_text()
    assert (tmp_path / "orders.csv").read_text() == expected
