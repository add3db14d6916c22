"""What has to change in a project, by its syntax."""

import ast
import pathlib
import subprocess

import pytest

from tfx_perf import errors
from tfx_perf.templates import addon, starting

_LISTED = '''"""A pipeline."""
from tfx import v1 as tfx


def create_pipeline(data):
    example_gen = tfx.components.CsvExampleGen(input_base=data)
    trainer = tfx.components.Trainer(
        module_file="größe.py", examples=example_gen.outputs["examples"]
    )
    pusher = tfx.components.Pusher(
        model=trainer.outputs["model"],
        push_destination=None,
    )
    return tfx.dsl.Pipeline(
        pipeline_name="listed", pipeline_root="root", components=[example_gen, trainer, pusher]
    )
'''
_APPENDED = '''from tfx.components import CsvExampleGen, Pusher, Trainer

def build(cloud):
  components = []
  if cloud:
    my_trainer = google_cloud_ai_platform.Trainer(run_fn="a.b")
  else:
    my_trainer = Trainer(run_fn="a.b")
  components.append(my_trainer)
  components.append(Pusher(model=my_trainer.outputs["model"]))
  return Pipeline(components=components)
'''


def _project(folder: pathlib.Path, text: str) -> pathlib.Path:
    (folder / "pipeline").mkdir(parents=True)
    (folder / "pipeline" / "__init__.py").touch()
    (folder / "pipeline" / "pipeline.py").write_text(text)
    return folder


def _changed_lines(added: addon.Addition) -> list[str]:
    return [
        line
        for line in added.patch([added.changed]).splitlines()
        if line[0] in "+-" and not line.startswith(("+++", "---"))
    ]


def test_components_in_a_list(tmp_path):
    added = addon.addition(_project(tmp_path, _LISTED))
    assert added.new_files == ["pipeline/perf_components.py", "pipeline/perf.yaml"]
    assert _changed_lines(added) == [
        "+from pipeline import perf_components",
        "-    trainer = tfx.components.Trainer(",
        "+    trainer, perf_blessing, perf_nodes = perf_components.train(",
        "+        infra_blessing=perf_blessing,",
        '-        pipeline_name="listed", pipeline_root="root", '
        "components=[example_gen, trainer, pusher]",
        '+        pipeline_name="listed", pipeline_root="root", '
        "components=[example_gen, trainer, *perf_nodes, pusher]",
    ]


def test_components_that_are_appended_and_a_trainer_under_a_condition(tmp_path):
    added = addon.addition(_project(tmp_path, _APPENDED))
    assert _changed_lines(added) == [
        "+from pipeline import perf_components",
        "+  perf_blessing, perf_nodes = None, []",
        '-    my_trainer = Trainer(run_fn="a.b")',
        '+    my_trainer, perf_blessing, perf_nodes = perf_components.train(run_fn="a.b")',
        '-  components.append(Pusher(model=my_trainer.outputs["model"]))',
        "+  components.extend(perf_nodes)",
        '+  components.append(Pusher(model=my_trainer.outputs["model"], '
        "infra_blessing=perf_blessing))",
    ]
    ast.parse(added.files[added.changed])


def test_the_patch_does_what_apply_does(tmp_path):
    first, second = (_project(tmp_path / name, _LISTED) for name in ("first", "second"))
    patch = addon.addition(first).patch()
    subprocess.run(["git", "apply", "-"], cwd=first, input=patch.encode(), check=True)
    addon.addition(second).write()
    for path in second.rglob("*"):
        if path.is_file():
            assert (first / path.relative_to(second)).read_bytes() == path.read_bytes()


def test_a_file_in_no_package_imports_from_its_own_folder(tmp_path):
    (tmp_path / "build.py").write_text(_LISTED)
    assert "\nimport perf_components\n" in addon.addition(tmp_path / "build.py").files["build.py"]


def test_modules_are_imported_as_the_project_does(tmp_path):
    project = _project(tmp_path / "mine", _LISTED)
    (project / "__init__.py").touch()
    added = addon.addition(project)
    assert "\nfrom pipeline import perf_components\n" in added.files[added.changed]
    (project / "runner.py").write_text("from mine.pipeline import pipeline\n")
    added = addon.addition(project)
    assert "\nfrom mine.pipeline import perf_components\n" in added.files["pipeline/pipeline.py"]


def test_what_it_cannot_do_is_said(tmp_path):
    without = _LISTED.replace("tfx.components.Pusher(", "my.Deployer(")
    assert "no Pusher" in addon.addition(_project(tmp_path / "a", without)).notes[0]
    blessed = _LISTED.replace("push_destination=None", "infra_blessing=validator")
    (note,) = addon.addition(_project(tmp_path / "b", blessed)).notes
    assert "has an infra_blessing already" in note


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", "there is none"),
        (_LISTED.replace("trainer, pusher]", "pusher]"), "no list of components takes trainer"),
        (_LISTED.replace("module_file=", "custom_executor_spec=x, module_file="), "own executor"),
        (_LISTED + _LISTED.replace("create_pipeline", "other"), "Expected one Trainer"),
        ("Trainer = (\n", "Expected Python"),
    ],
)
def test_what_no_rule_covers_is_refused(tmp_path, text, expected):
    project = _project(tmp_path, text)
    with pytest.raises(errors.UserError, match=expected):
        addon.addition(project)
    with pytest.raises(errors.UserError, match=expected):
        starting.copy("perf-addon", pipeline_name="x", destination=project)
    assert (project / "pipeline" / "pipeline.py").read_text() == text
    assert not (project / "pipeline" / "perf_components.py").exists()


def test_it_is_added_once(tmp_path):
    project = _project(tmp_path, _LISTED)
    addon.addition(project).write()
    with pytest.raises(errors.UserError):
        addon.addition(project)


def test_no_project_is_refused(tmp_path):
    with pytest.raises(errors.UserError, match="does not exist"):
        addon.addition(tmp_path / "none")


def test_a_copied_addon_leaves_the_pipeline_to_the_user(tmp_path):
    project = _project(tmp_path, _LISTED)
    copied = starting.copy("perf-addon", pipeline_name="x", destination=project)
    assert [path.name for path in copied.files] == ["perf_components.py", "perf.yaml"]
    assert (project / "pipeline" / "pipeline.py").read_text() == _LISTED
    subprocess.run(["git", "apply", "-"], cwd=project, input=copied.patch.encode(), check=True)
    assert "perf_components.train(" in (project / "pipeline" / "pipeline.py").read_text()
