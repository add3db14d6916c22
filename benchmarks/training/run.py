"""Measures the cells one by one, every training in a process of its own."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.training import results
from benchmarks.training.workloads import TAXI_BATCH_SIZES, WORKLOADS
from tfx_perf import errors
from tfx_perf.components import child
from tfx_perf.training.plan import PLAIN_FIT

_TIMEOUT_SECONDS = 900
_TAXI_STEPS = 5000
_COMMAND = pathlib.Path(sys.executable).with_name("tfx-perf")
_REGRET_ROUNDS = 6


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to measure a cell.

    Attributes:
        data_folder: where data sets and logs are kept.
        rounds: trainings of each kind, in turns.
        scale: times the workload's number of steps.
    """

    data_folder: pathlib.Path
    rounds: int
    scale: float = 1.0


def measure(cell: results.Cell, settings: Settings) -> results.CellResult:
    """Measures a cell.

    Raises:
        UserError: the data are not on this machine.
        MeasurementError: a process failed.
    """
    if cell.workload in TAXI_BATCH_SIZES:
        return _taxi(cell, settings)
    workload = WORKLOADS[cell.workload]
    steps = max(20, int(workload.steps * settings.scale))
    runs: dict[str, list[results.Run]] = {kind: [] for kind in results.KINDS}
    for _ in range(settings.rounds):
        for kind, own in runs.items():
            found = _in_child(cell, settings, "train_job", kind=kind, steps=steps)
            own.append(results.Run.model_validate(found))
    regret = _in_child(cell, settings, "regret_job", rounds=_REGRET_ROUNDS)
    return results.CellResult(
        cell=cell,
        steps=steps,
        batch_size=workload.batch_size,
        runs={kind: tuple(own) for kind, own in runs.items()},
        regret=results.Regret.model_validate(regret),
    )


def _in_child(
    cell: results.Cell, settings: Settings, job: str, **arguments: Any
) -> dict[str, Any]:
    logs = settings.data_folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    name = "-".join([str(cell).replace(" ", "-"), job, str(arguments.get("kind", ""))])
    return child.run_in_child(
        f"benchmarks.training.{job}:run",
        {"workload": cell.workload, "data_folder": str(settings.data_folder), **arguments},
        timeout_seconds=_TIMEOUT_SECONDS,
        log_path=logs / f"{name}.log",
        environment=_environment(cell.line),
    )


def _taxi(cell: results.Cell, settings: Settings) -> results.CellResult:
    """Measures TFX's taxi template in a whole pipeline, with InputTuner."""
    batch_size = TAXI_BATCH_SIZES[cell.workload]
    steps = max(50, int(_TAXI_STEPS * settings.scale))
    runs: dict[str, list[results.Run]] = {results.STOCK: [], results.TUNED: []}
    for _ in range(settings.rounds):
        demo = _demo(cell.line, batch_size=batch_size, steps=steps)
        for kind, key in ((results.STOCK, "stock"), (results.TUNED, "optimized")):
            plan = demo["plan"] if kind == results.TUNED else str(PLAIN_FIT)
            runs[kind].append(_taxi_run(demo[key], plan=plan, batch_size=batch_size))
    return results.CellResult(
        cell=cell,
        steps=steps,
        batch_size=batch_size,
        runs={kind: tuple(own) for kind, own in runs.items()},
    )


def _demo(line: str, *, batch_size: int, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            str(_COMMAND), "demo", "--json", "--output", folder,
            "--batch-size", str(batch_size), "--steps", str(steps),
        ]  # fmt: skip
        done = subprocess.run(
            command, env={**os.environ, **_environment(line)}, capture_output=True,
            text=True, timeout=_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    if done.returncode:
        raise errors.MeasurementError(f"tfx-perf demo failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)["runs"][0]


def _taxi_run(figures: dict[str, float], *, plan: str, batch_size: int) -> results.Run:
    return results.Run(
        mean_step_time_seconds=batch_size / figures["examples_per_second"],
        fit_time_seconds=figures["fit_time_seconds"],
        component_time_seconds=None,
        trial_time_seconds=figures["trial_time_seconds"] or 0.0,
        plan=plan,
        train_loss=figures["train_loss"],
    )


def _environment(line: str) -> dict[str, str]:
    return {"TF_USE_LEGACY_KERAS": "1" if line == "tf_keras" else "0"}
