"""The add-on on the project that TFX's own template makes."""

import pathlib
import re
import subprocess

import pytest
from tfx.tools.cli import labels
from tfx.tools.cli.handler import template_handler

from tests import processes
from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.templates import addon

_OURS = {"InputPlan", "MemoryProfile", "PerfMetrics", "PerfEvaluation"}
_QUICK = """tensorflow_optimization:
  input: {tuning_seconds: 5}
  training: {tuning_seconds: 0}
  gate: {use_defaults: false, rules: {peak_memory_bytes: {max: 1.0e+15}}}
"""


@pytest.fixture(scope="module")
def taxi(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The stock project, with the components that its comments leave out, and the add-on."""
    project = tmp_path_factory.mktemp("taxi") / "project"
    flags = {labels.MODEL: "taxi", labels.PIPELINE_NAME: "taxi"}
    template_handler.copy_template({**flags, labels.DESTINATION_PATH: str(project)})
    definition = project / "pipeline" / "pipeline.py"
    text = re.sub(r"# (components\.append\()", r"\1", definition.read_text())
    definition.write_text(text)
    patch = addon.addition(project).patch()
    subprocess.run(["git", "apply", "-"], cwd=project, input=patch.encode(), check=True)
    return project


@pytest.mark.slow
def test_it_runs_and_the_gate_decides_with_evaluator(taxi):
    (taxi / "pipeline" / "perf.yaml").write_text(_QUICK)
    environment = {"PYTHONPATH": str(taxi)}
    done = processes.python("local_runner.py", cwd=taxi, environment=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    (database,) = taxi.rglob("metadata.db")
    run = recorded_runs.read_runs(database, limit=1)[0]
    assert (run.state, run.blessed, run.pushed) == ("complete", True, True)
    assert run.metrics["examples_per_second"] > 0
    assert set(run.folders) >= _OURS
    assert not list(taxi.rglob("Trainer/model"))
    assert pathlib.Path(taxi, run.folders["PerfMetrics"], "report.html").is_file()
