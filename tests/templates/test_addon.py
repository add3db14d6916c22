"""What has to change in a project, by its syntax (`project_scan`); also by `cli.template`."""

import ast
import json
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest
import yaml
from click import testing

from tfx_perf.cli import main
from tfx_perf.config import PerfConfig, ScheduleSettings
from tfx_perf.core import errors
from tfx_perf.templates import addon, copying

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
_APPENDED = """from tfx.components import CsvExampleGen, Pusher, Trainer

def build(cloud):
  components = []
  if cloud:
    my_trainer = google_cloud_ai_platform.Trainer(run_fn="a.b")
  else:
    my_trainer = Trainer(run_fn="a.b")
  components.append(my_trainer)
  components.append(Pusher(model=my_trainer.outputs["model"]))
  return Pipeline(components=components)
"""


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


def test_a_trainer_keeps_the_name_of_its_node(tmp_path):
    text = _APPENDED.replace('(run_fn="a.b")\n  comp', '(run_fn="a.b").with_id("X")\n  comp')
    added = addon.addition(_project(tmp_path, text))
    assert _changed_lines(added)[2:5] == [
        '-    my_trainer = Trainer(run_fn="a.b").with_id("X")',
        '+    my_trainer, perf_blessing, perf_nodes = perf_components.train(run_fn="a.b")',
        "+    my_trainer.with_id('X')",
    ]


_TABBED = re.sub(r"^( +)", lambda found: "\t" * (len(found[1]) // 2), _APPENDED, flags=re.MULTILINE)
_WRITTEN = {
    "Windows": _LISTED.replace("\n", "\r\n").encode(),
    "Windows, appended": _APPENDED.replace("\n", "\r\n").encode(),
    "carriage returns": _APPENDED.replace("\n", "\r").encode(),
    "byte order mark": _LISTED.encode("utf-8-sig"),
    "form feeds": _APPENDED.replace("def ", "\fdef ").replace("  components.", "\f  components.")
    .encode(),
    "tabs": _TABBED.encode(),
    "separators in texts": _LISTED.replace("größe", "a\x0b\x1c\x85\u2028b").encode(),
    "no line end at the end": _LISTED.rstrip().encode(),
}  # fmt: skip


@pytest.mark.parametrize("written", _WRITTEN.values(), ids=_WRITTEN)
def test_a_file_keeps_the_characters_that_it_has(tmp_path, written):
    first, second = (_project(tmp_path / name, "") for name in ("first", "second"))
    changed = [project / "pipeline" / "pipeline.py" for project in (first, second)]
    for path in changed:
        path.write_bytes(written)
    # The others without a process each, which only line ends are an affair of.
    patch = _printed(second) if b"\r" in written else addon.addition(second).patch().encode()
    addon.addition(second).write()
    subprocess.run(["git", "apply", "-"], cwd=first, input=patch, check=True)
    for path in second.rglob("*.*"):
        assert (first / path.relative_to(second)).read_bytes() == path.read_bytes()
    result = changed[0].read_bytes()
    ast.parse(result)
    ends = re.findall(rb"\r\n|\r|\n", result)
    assert len(set(ends)) == 1
    assert len(ends) > len(re.findall(rb"\r\n|\r|\n", written))
    assert written.startswith(result.partition(b"from")[0])


def test_a_file_keeps_its_encoding(tmp_path):
    text = f"# -*- coding: latin-1 -*-\n{_LISTED.replace('größe', 'model')}"
    assert addon.addition(_project(tmp_path / "plain", text)).notes == ()
    project = _project(tmp_path / "special", "")
    path = project / "pipeline" / "pipeline.py"
    path.write_bytes(f"# -*- coding: latin-1 -*-\n{_LISTED}".encode("latin-1"))
    (note,) = addon.addition(project).notes
    assert "is in iso-8859-1 and the patch is shown in UTF-8" in note
    assert _apply(project).exit_code == 0
    text = path.read_bytes().decode("latin-1")
    assert 'perf_components.train(\n        module_file="größe.py"' in text
    assert ast.parse(path.read_bytes())


def test_a_file_that_cannot_be_decoded_is_passed_over_unless_it_is_the_pipeline(tmp_path):
    project = _project(tmp_path, _LISTED)
    (project / "helper.py").write_bytes("# Trainer: größe\n".encode("latin-1"))
    (project / "wrong_cookie.py").write_text("# coding: nonsense\n")
    assert addon.addition(project).changed == "pipeline/pipeline.py"
    for target in (project, project / "helper.py"):
        (project / "pipeline" / "pipeline.py").unlink(missing_ok=True)
        with pytest.raises(errors.UserError, match=r"could not decode .*helper\.py\.$"):
            addon.addition(target)


def test_modules_are_imported_as_the_project_does(tmp_path):
    (tmp_path / "build.py").write_text(_LISTED)  # in no package: from its own folder
    assert "\nimport perf_components\n" in addon.addition(tmp_path / "build.py").files["build.py"]
    project = _project(tmp_path / "mine", _LISTED)
    (project / "__init__.py").touch()
    added = addon.addition(project)
    assert "\nfrom pipeline import perf_components\n" in added.files[added.changed]
    (project / "runner.py").write_text("from mine.pipeline import pipeline\n")
    added = addon.addition(project)
    assert "\nfrom mine.pipeline import perf_components\n" in added.files["pipeline/pipeline.py"]


def test_the_import_comes_before_a_trainer_that_other_imports_follow(tmp_path):
    script = textwrap.dedent(_LISTED.partition("def create_pipeline(data):\n")[2])
    script = script.replace("return tfx.dsl.Pipeline(", "import os\npipeline = tfx.dsl.Pipeline(")
    head = '"""A script."""\nfrom tfx import v1 as tfx\n\ndata = "here"\n'
    (tmp_path / "build.py").write_text(head + script)
    changed = addon.addition(tmp_path / "build.py").files["build.py"]
    assert changed.index("import perf_components\n") < changed.index("perf_components.")


def test_what_it_cannot_do_is_said(tmp_path):
    without = _LISTED.replace("tfx.components.Pusher(", "my.Deployer(")
    assert "no Pusher" in addon.addition(_project(tmp_path / "a", without)).notes[0]
    blessed = _LISTED.replace("push_destination=None", "infra_blessing=validator")
    (note,) = addon.addition(_project(tmp_path / "b", blessed)).notes
    assert "stops no push until you pass perf_blessing to Pusher" in note


def test_of_several_trainers_one_is_named_by_its_line(tmp_path):
    project = _project(tmp_path, _LISTED + _LISTED.replace("create_pipeline", "other"))
    file = project / "pipeline" / "pipeline.py"
    last = max(n for n, text in enumerate(file.read_text().split("\n"), 1) if "Trainer(" in text)
    added = addon.addition(file.with_name(f"pipeline.py:{last}"))
    text = added.files[added.changed]
    assert text.count("perf_components.train(") == text.count("components.Trainer(") == 1
    assert text.index("components.Trainer(") < text.index("perf_components.train(")


_BREAKS = """def build(push):
    c = []
    if push: trainer = Trainer(run_fn="a.b"); c.append(trainer)
    return c
"""
_LOOPS = """def build():
    c = []
    for name in "ab":
        trainer = Trainer(run_fn="a.b")
        c.append(trainer)
    return c
"""
_NONE = "of which none is surely"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", "there is none"),
        (_LISTED.replace("trainer = ", "trainer: X = "), r"pipeline\.py:\d+\. Write trainer = "),
        ("trainer = (Trainer(run_fn=x)\n  .with_id(y))\n", r"pipeline\.py:1\. Write trainer = "),
        (_LISTED.replace("trainer, pusher]", "pusher]"), "no list of components takes trainer"),
        (_LISTED.replace("module_file=", "custom_executor_spec=x, module_file="), "own executor"),
        (_LISTED + _LISTED.replace("create_pipeline", "other"), r"addon .*pipeline\.py:\d+\."),
        ("trainer = OptimizedTrainer(x=1)\n", "no PerfEvaluator: add it"),
        ("Trainer = (\n", "Expected Python"),
        (_BREAKS, r"pipeline\.py:3. Break the line before c\.append\(trainer\)"),
        (_LOOPS, r"in the loop at .*pipeline\.py:3"),
        ("while x:\n  trainer = Trainer()\n  c.append(trainer)\n", r"in the loop at .*\.py:1"),
        ("import a; x = f(\n)\ntrainer = Trainer()\nc = [trainer]\n", "changed line by line"),
        ("trainer = Trainer()\nE(depends=[trainer])\n", rf"pipeline\.py:2, {_NONE}"),
        ("trainer = Trainer()\nE.add_upstream_nodes([trainer])\n", rf"pipeline\.py:2, {_NONE}"),
        (
            "trainer = Trainer()\na = [trainer]\nb = [trainer]\n",
            rf"Received: .*pipeline\.py:2, .*pipeline\.py:3, {_NONE}",
        ),
        (
            "trainer = Trainer()\nif x: c = [trainer]\nelse: c = [x, trainer]\nP(components=c)\n",
            rf"Received: .*pipeline\.py:2, .*pipeline\.py:3, {_NONE}",
        ),
    ],
)
def test_code_that_no_rule_covers_is_refused_in_one_line(tmp_path, text, expected):
    project = _project(tmp_path, text)
    with pytest.raises(errors.UserError, match=expected) as refused:
        addon.addition(project)
    assert "\n" not in str(refused.value)
    assert (project / "pipeline" / "pipeline.py").read_text() == text
    assert not (project / "pipeline" / "perf_components.py").exists()


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        ("return Pipeline(components=[trainer])", "(components=[trainer, *perf_nodes])"),
        ("return Pipeline('n', 'r', None, [trainer])", "None, [trainer, *perf_nodes])"),
        ("c = [trainer]; return Pipeline(components=c)", "c = [trainer, *perf_nodes];"),
        ("c = [trainer]; d = list(c) + [x]; P(components=d)", "c = [trainer, *perf_nodes];"),
        ("return P(components=[x] + list(filter(None, [trainer])))", "[trainer, *perf_nodes])))"),
        ("self.c = [trainer]; P(components=self.c)", "self.c = [trainer, *perf_nodes];"),
        ("c = []; c += [trainer]; return c", "c += [trainer, *perf_nodes];"),
        ("c.extend([trainer])", "c.extend([trainer, *perf_nodes])"),
        ("c.append(trainer)", "c.append(trainer)\n    c.extend(perf_nodes)"),
        ("c = [trainer]; c.append(x)", "c = [trainer, *perf_nodes];"),
        ("return [trainer]", "return [trainer, *perf_nodes]"),
    ],
)
def test_of_several_lists_that_of_the_components_is_changed(tmp_path, listing, expected):
    text = f"""def build(self, c):
    trainer = Trainer(run_fn="a.b")
    E(depends=[trainer])
    watched = [trainer]
    {listing}
"""
    added = addon.addition(_project(tmp_path, text))
    changed = added.files[added.changed]
    assert expected in changed
    assert changed.replace(expected, "").count("*perf_nodes") == 0
    assert "E(depends=[trainer])\n    watched = [trainer]\n" in changed


@pytest.mark.parametrize(
    ("given", "expected"),
    [("None,  # (nowhere), yet", "None,  # (nowhere), yet"), ("None  # no,", "None,  # no,")],
)
def test_comments_after_arguments_are_no_arguments(tmp_path, given, expected):
    text = _LISTED.replace("push_destination=None,", f"push_destination={given}")
    added = addon.addition(_project(tmp_path, text))
    assert f"{expected}\n        infra_" in added.files[added.changed]


def test_an_import_is_added_after_those_that_must_come_first(tmp_path):
    first = '#!/usr/bin/env python\n# coding: utf-8\n"""A pipeline."""\n'
    build = "def build():\n  trainer = Trainer()\n  return [trainer]\n"
    for name, text, before in (("a", first, first), ("b", "# x\n@y\n", "# x\n")):
        added = addon.addition(_project(tmp_path / name, text + build))
        changed = added.files[added.changed]
        assert changed.startswith(f"{before}from pipeline import perf_components\n")


_PATHS = ["pipeline/perf_components.py", "pipeline/perf.yaml", "pipeline/pipeline.py"]


def _files(project: pathlib.Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in project.rglob("*") if path.is_file()}


def _apply(project: pathlib.Path, *options: str) -> testing.Result:
    return testing.CliRunner().invoke(main.cli, ["addon", str(project), "--apply", *options])


def test_who_has_applied_it_is_told_what_to_run(tmp_path):
    project = _project(tmp_path / "a project", _LISTED)
    assert "Next:" not in testing.CliRunner().invoke(main.cli, ["addon", str(project)]).output
    assert _apply(project).stderr.endswith(f"Next: cd '{project}' && tfx-perf run SCRIPT\n")
    usual = _project(tmp_path / "usual", _LISTED)
    (usual / "local_runner.py").touch()
    assert _apply(usual).stderr.endswith("tfx-perf run local_runner.py\n")


def _printed(project: pathlib.Path) -> bytes:
    """Returns what the command itself prints: click's test runner would change line ends."""
    command = [sys.executable, "-m", "tfx_perf", "addon", str(project)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


@pytest.mark.parametrize("text", [_LISTED, _APPENDED])
def test_an_earlier_addition_is_no_error_and_stays(tmp_path, text):
    project = _project(tmp_path, text)
    assert _apply(project).exit_code == 0
    (project / "pipeline" / "perf.yaml").write_text("training: {seed: 1}  # mine\n")
    before = _files(project)
    for target in (project, project / "pipeline" / "pipeline.py"):
        done = _apply(target)
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr == f"Already added: {', '.join(_PATHS)}\n"
    document = json.loads(_apply(project, "--json").stdout)
    assert (document["already_added"], document["patch"]) == (True, "")
    assert _files(project) == before


def test_missing_parts_are_added_to_existing_ones(tmp_path):
    project = _project(tmp_path, _LISTED)
    addon.addition(project).write()
    (project / _PATHS[2]).write_text(_LISTED)
    document = json.loads(_apply(project, "--json").stdout)
    assert (document["already_added"], document["changed"]) == (False, _PATHS[2])
    assert document["new_files"] == []
    (project / _PATHS[1]).unlink()
    added = addon.addition(project)
    assert (added.new_files, added.changed) == ([_PATHS[1]], None)
    assert added.kept == (_PATHS[0], _PATHS[2])


@pytest.mark.parametrize(
    ("file", "text", "added_before", "words"),
    [
        (_PATHS[0], "mine = 1\n", False, "perf_components.py, which is not from tfx-perf"),
        (_PATHS[1], "events: [cycles]\n", False, r"Received: .*perf\.yaml\. Rename it"),
        (_PATHS[1], "events: [cycles]\n", True, r"Received: .*perf\.yaml\. Rename it"),
        (_PATHS[1], "a: [\n", True, r"Received: .*perf\.yaml\. Rename it"),
    ],
)
def test_files_of_others_are_left_alone(tmp_path, file, text, added_before, words):
    project = _project(tmp_path, _LISTED)
    if added_before:
        addon.addition(project).write()
    (project / file).write_text(text)
    before = _files(project)
    with pytest.raises(errors.UserError, match=words) as refused:
        addon.addition(project)
    assert "\n" not in str(refused.value)
    assert _apply(project).exit_code == 1
    assert _files(project) == before


def test_the_settings_are_the_defaults_but_for_what_measures_more():
    text = copying.contents(copying.PERF_ADDON, pipeline_name="")["perf.yaml"]
    lines = text.splitlines()
    assert len(lines) <= 25
    assert all("#" in line for line in lines)
    assert PerfConfig.from_dict(yaml.safe_load(text)) == PerfConfig(
        schedule=ScheduleSettings(expected_runs=30),
    )
    assert "except for expected_runs" in lines[0]


def test_a_new_project_tunes_as_long_as_by_default():
    text = copying.contents(copying.PERF, pipeline_name="x")["perf.yaml"]
    settings, defaults = PerfConfig.from_dict(yaml.safe_load(text)), PerfConfig()
    assert (settings.input, settings.training) == (defaults.input, defaults.training)


def test_no_project_is_refused(tmp_path):
    with pytest.raises(errors.UserError, match="does not exist"):
        addon.addition(tmp_path / "none")
