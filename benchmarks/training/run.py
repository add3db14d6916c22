"""Measures the cells one by one; the trainings of a cell take turns, each in its own process."""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping
from typing import Any

from benchmarks.training import in_turns, results
from benchmarks.training.workloads import TAXI_BATCH_SIZES, WORKLOADS
from tfx_perf import isolate
from tfx_perf.core import errors
from tfx_perf.training.speedups.onednn import OneDnn
from tfx_perf.training.speedups.plan import PLAIN_FIT

_TIMEOUT_SECONDS = 1800
_COMMAND = pathlib.Path(sys.executable).with_name("tfx-perf")
_REGRET_ROUNDS = 6


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to measure a cell.

    Attributes:
        data_folder: where data sets and logs are kept.
        rounds: blocks of each training, in turns.
        regret: whether to measure all plans too.
        taxi_steps: of a training of the taxi template.
    """

    data_folder: pathlib.Path
    rounds: int
    regret: bool = True
    taxi_steps: int = 5000


def measure(cell: results.Cell, settings: Settings) -> results.CellResult:
    """Measures a cell.

    Raises:
        UserError: the data are not on this machine.
        MeasurementError: a process failed.
    """
    if cell.workload in TAXI_BATCH_SIZES:
        return _taxi(cell, settings)
    trainings = [functools.partial(_train, cell, settings, kind) for kind in results.KINDS]
    measured = in_turns.train_in_turns(
        trainings, rounds=settings.rounds, start_seconds=_TIMEOUT_SECONDS
    )
    runs = {
        kind: results.Run(step_time_seconds=blocks, start_time_seconds=start, **found)
        for kind, (found, blocks, start) in zip(results.KINDS, measured, strict=True)
    }
    regret = None
    if settings.regret:
        # The best plan depends on the kernels, so it uses those of the training.
        kernels = OneDnn().environment() if runs[results.OPTIMIZED].uses_onednn else {}
        found = _in_child(cell, settings, "regret_job", environment=kernels, rounds=_REGRET_ROUNDS)
        regret = results.Regret.model_validate(found)
    return results.CellResult(
        cell=cell, batch_size=WORKLOADS[cell.workload].batch_size, runs=runs, regret=regret
    )


def _train(
    cell: results.Cell, settings: Settings, kind: str, clock: pathlib.Path
) -> dict[str, Any]:
    return _in_child(
        cell, settings, "train_job", kind=kind, steps=results.LONG_STEPS, clock=str(clock)
    )


def _in_child(
    cell: results.Cell,
    settings: Settings,
    job: str,
    *,
    environment: Mapping[str, str] = types.MappingProxyType({}),
    **arguments: Any,
) -> dict[str, Any]:
    logs = settings.data_folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    name = "-".join([str(cell).replace(" ", "-"), job, str(arguments.get("kind", ""))])
    return isolate.run(
        f"benchmarks.training.{job}:run",
        {"workload": cell.workload, "data_folder": str(settings.data_folder), **arguments},
        timeout_seconds=_TIMEOUT_SECONDS,
        log_path=logs / f"{name}.log",
        environment={**_environment(cell.line), **environment},
    )


def _taxi(cell: results.Cell, settings: Settings) -> results.CellResult:
    """Measures TFX's taxi template in a whole pipeline, with InputTuner."""
    batch_size = TAXI_BATCH_SIZES[cell.workload]
    demo = _demo(cell.line, batch_size=batch_size, steps=settings.taxi_steps)
    figures = {results.STOCK: demo["stock"], results.TUNED: demo["optimized"]}
    plans = {results.STOCK: str(PLAIN_FIT), results.TUNED: demo["plan"]}
    return results.CellResult(
        cell=cell,
        batch_size=batch_size,
        runs={
            kind: _taxi_run(own, plan=plans[kind], batch_size=batch_size, settings=settings)
            for kind, own in figures.items()
        },
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


def _taxi_run(
    figures: dict[str, float], *, plan: str, batch_size: int, settings: Settings
) -> results.Run:
    step_seconds = batch_size / figures["examples_per_second"]
    return results.Run(
        step_time_seconds=(step_seconds,),
        start_time_seconds=figures["fit_time_seconds"] - settings.taxi_steps * step_seconds,
        trial_time_seconds=figures["trial_time_seconds"] or 0.0,
        plan=plan,
        train_loss=figures["train_loss"],
    )


def _environment(line: str) -> dict[str, str]:
    return {"TF_USE_LEGACY_KERAS": "1" if line == "tf_keras" else "0"}
