"""A project of the template `perf` whose data are new every day and have ever more countries."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.templates import copying

DAYS = 7
SLOW_DAY = 5

# Trainings of a second on a machine with other work: only what is half as fast again counts.
_SETTINGS = """
tensorflow_optimization:
  input: {{time_budget_seconds: 5}}
  memory: {{batch_sizes: [64, 256]}}
  training: {{trial_budget_seconds: 10}}
  gate:
    baseline_uri: {ledger}
    rules:
      step_time_seconds: {{margin: 0.5}}
      examples_per_second: {{margin: 0.5}}
      training_memory_bytes: {{margin: 0.2}}
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


class WeekProject:
    """One of several projects that share a ledger.

    Args:
        folder: of the project; made.
        name: of its pipeline.
        ledger: its `baseline_uri`.
        seed: of its data.
    """

    def __init__(self, folder: pathlib.Path, *, name: str, ledger: pathlib.Path, seed: int) -> None:
        self.folder, self.name, self._seed = folder, name, seed
        copying.copy_project(copying.PERF, pipeline_name=name, destination=folder)
        (folder / "perf.yaml").write_text(_SETTINGS.format(ledger=ledger))
        self._replace("airflow_runner.py", 'schedule="@daily"', "schedule=None")
        self._replace("airflow_runner.py", "retries=1", "retries=0")
        self._replace("pipeline/configs.py", "TRAIN_STEPS = 1000", "TRAIN_STEPS = 300")

    def begin_day(self, day: int, *, slow: bool) -> None:
        """Writes the day's data, with four countries more than the day before, and the code.

        Args:
            day: from 1 on.
            slow: whether somebody has made reading slow today.
        """
        spec = importlib.util.spec_from_file_location("make_data", self.folder / "make_data.py")
        make_data = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(make_data)
        orders = make_data.rows(3000, seed=100 * self._seed + day)
        for number, order in enumerate(orders):
            if number % 10 == 0:
                order["country"] = f"new-{number // 10 % (4 * day)}"
        make_data.write_csv(orders, self.folder / "data" / "orders.csv")
        code = self.folder / "models" / "model.py"
        text = code.read_text().replace(_READ_SLOWLY, _READ)
        assert _READ in text
        code.write_text(text.replace(_READ, _READ_SLOWLY) if slow else text)

    def run_locally(self, day: int) -> None:
        """Runs the pipeline on this machine."""
        self._python("local_runner.py", "--label", f"day-{day}")

    def deploy(self, airflow_home: pathlib.Path) -> None:
        """Writes its DAG."""
        self._python("airflow_runner.py", AIRFLOW_HOME=str(airflow_home))

    def verdicts(self) -> list[dict[str, Any]]:
        """Returns what the gate said of each run, oldest first."""
        found = []
        for run in reversed(recorded_runs.read_runs(self.folder / "output" / "metadata.sqlite")):
            evaluation = pathlib.Path(run.folders["PerfEvaluation"], "evaluation.json")
            decision = json.loads(evaluation.read_text())
            found.append(
                {
                    "project": self.name,
                    "run_id": run.run_id,
                    "blessed": run.blessed,
                    "headline": run.note or decision["headline"],
                    "parameters": run.metrics.get("parameter_count"),
                    "step_time_seconds": run.metrics.get("step_time_seconds"),
                    "baseline": [
                        (item["pipeline"], item["run_id"]) for item in decision["baseline_runs"]
                    ],
                }
            )
        return found

    def _replace(self, name: str, before: str, after: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert before in text, (name, before)
        path.write_text(text.replace(before, after))

    def _python(self, *arguments: str, **environment: str) -> None:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, capture_output=True, text=True,
            check=False, env={**os.environ, **environment},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
