"""No command shows the messages of the libraries that it imports."""

import pytest
from mlmd_recorder import Recorder

_MODULE = """
from tfx import v1 as tfx

def create():
    gen = tfx.components.CsvExampleGen(input_base="gs://bucket/data")
    trainer = tfx.components.Trainer(run_fn="a.run_fn", examples=gen.outputs["examples"])
    return tfx.dsl.Pipeline("mine", "gs://bucket/root", components=[gen, trainer])
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A pipeline, its settings and a database with two runs of it."""
    folder = tmp_path_factory.mktemp("quiet")
    (folder / "my_pipeline.py").write_text(_MODULE)
    (folder / "settings.yaml").write_text("image: mine:1\n")
    (folder / "refused.yaml").write_text("{}")
    recorder = Recorder(folder / "metadata.sqlite")
    for run in ("a", "b"):
        recorder.execute("OptimizedTrainer", run=run, outputs={"tfx_perf.PerfMetrics": {}})
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("history", "metadata.sqlite", "--html", "page.html"),
        ("compare", "a", "b", "--source", "metadata.sqlite"),
        ("calibrate", "metadata.sqlite", "--refused"),
        ("revoke", "a", "--reason", "slow", "--source", "metadata.sqlite"),
        ("template", "list"),
        ("addon", "."),
        pytest.param(
            ("kubeflow", "compile", "my_pipeline:create", "--settings", "settings.yaml"),
            marks=pytest.mark.slow,  # it imports TFX
        ),
        ("kubeflow", "lint", "refused.yaml"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_nothing_is_on_standard_error(project, monkeypatch, run_command, arguments):
    monkeypatch.chdir(project)
    if "kubeflow" in arguments:
        pytest.importorskip("kfp", reason="kfp is not installed (extra kfp)")
    done = run_command(*arguments)
    said = [line for line in done.stderr.splitlines() if not line.startswith("Note: There is no P")]
    assert (done.returncode, said) == (int("lint" in arguments), [])


@pytest.mark.slow
@pytest.mark.parametrize("command", ["upload", "run"])
def test_a_server_that_does_not_answer_is_the_only_line(project, monkeypatch, run_command, command):
    pytest.importorskip("kfp", reason="kfp is not installed (extra kfp)")
    monkeypatch.chdir(project)
    done = run_command("kubeflow", command, "refused.yaml", "--host", "http://127.0.0.1:9")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("tfx-perf: Expected ")
