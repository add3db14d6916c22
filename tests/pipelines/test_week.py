"""A week of two projects with one ledger: vocabularies grow, and one day somebody is careless."""

import json
import pathlib
import runpy
from typing import Any

import pytest

from tests import processes
from tfx_perf.gate.ledger_store import LedgerFolder
from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.templates import copying

pytestmark = [pytest.mark.slow, pytest.mark.timeout(10_800)]

DAYS, SLOW_DAY = 7, 5
_PROJECTS = ("orders", "returns")
# Trainings of a second on a machine with other work: only what is half as fast again counts.
_SETTINGS = """
tensorflow_optimization:
  input: {{tuning_seconds: 5}}
  memory: {{batch_sizes: [64, 256]}}
  training: {{tuning_seconds: 10}}
  gate:
    baseline_uri: {ledger}
    rules:
      step_time_seconds: {{tolerance: 0.5}}
      examples_per_second: {{tolerance: 0.5}}
      training_memory_bytes: {{tolerance: 0.2}}
      input_wait_ratio: null
"""
_READ = "    return fn_args.data_accessor.tf_dataset_factory(patterns, options, schema).repeat()\n"
_READ_SLOWLY = """    def wait(label):
        import time
        time.sleep(0.02)
        return label
    data = fn_args.data_accessor.tf_dataset_factory(patterns, options, schema)
    return data.repeat().map(lambda columns, label: (columns, tf.ensure_shape(
        tf.numpy_function(wait, [label], label.dtype), label.shape)))
"""


def _begin_day(project: pathlib.Path, day: int) -> None:
    """Writes the day's data, with four countries more than the day before, and the code."""
    make_data = runpy.run_path(str(project / "make_data.py"))
    orders = make_data["rows"](3000, seed=100 * _PROJECTS.index(project.name) + day)
    for number, order in enumerate(orders):
        if number % 10 == 0:
            order["country"] = f"new-{number // 10% (4 * day)}"
    make_data["write_csv"](orders, project / "data" / "orders.csv")
    code = project / "models" / "model.py"
    text = code.read_text().replace(_READ_SLOWLY, _READ)
    assert _READ in text
    is_slow = (project.name, day) == ("orders", SLOW_DAY)
    code.write_text(text.replace(_READ, _READ_SLOWLY) if is_slow else text)


def _decisions(project: pathlib.Path) -> list[tuple[recorded_runs.RecordedRun, dict[str, Any]]]:
    """Returns the runs, oldest first, and what the gate found."""
    runs = recorded_runs.read_runs(project / "output" / "metadata.sqlite")[::-1]
    paths = [pathlib.Path(run.folders["PerfEvaluation"], "evaluation.json") for run in runs]
    return [(run, json.loads(path.read_text())) for run, path in zip(runs, paths, strict=True)]


def test_a_week(tmp_path):
    projects = [tmp_path / name for name in _PROJECTS]
    for project in projects:
        copying.copy_project(copying.PERF, pipeline_name=project.name, destination=project)
        (project / "perf.yaml").write_text(_SETTINGS.format(ledger=tmp_path / "ledger"))
    for day in range(1, DAYS + 1):
        for project in projects:
            _begin_day(project, day)
            options = ("--label", f"day-{day}", "--set", "train_steps=300")
            done = processes.python("local_runner.py", *options, cwd=project)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
            run, decision = _decisions(project)[-1]
            print(day, project.name, run.metrics, decision["headline"], flush=True)
    for project in projects:
        runs, decisions = zip(*_decisions(project), strict=True)
        assert len(runs) == DAYS
        slow_days = [day for day, run in enumerate(runs, start=1) if not run.blessed]
        assert slow_days == ([SLOW_DAY] if project.name == "orders" else [])
        for before, decision in enumerate(decisions):
            # Not with all: within a week the model grows beyond what is comparable.
            assert len(decision["baseline_runs"]) >= min(before, 1)
            assert {item["pipeline"] for item in decision["baseline_runs"]} <= {project.name}
        assert len({run.metrics["parameter_count"] for run in runs}) == DAYS
    blessed = [run.pipeline for run in LedgerFolder(str(tmp_path / "ledger")).read().entries]
    assert sorted(blessed) == ["orders"] * (DAYS - 1) + ["returns"] * DAYS
