"""Measures the cells one by one, each in a process of its own."""

import dataclasses
import pathlib
import time
from collections.abc import Sequence

from benchmarks import machine
from benchmarks.input import console, results, targets
from benchmarks.input.workloads import WORKLOADS
from tfx_perf import isolate
from tfx_perf.core import errors
from tfx_perf.hardware import versions

_JOB = "benchmarks.input.cell_job:run"  # not imported here: it loads TensorFlow
_CELL_TIMEOUT_SECONDS = 900
_PACKAGES = ("tensorflow", "tf-keras", "tfx", "tfx-bsl")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to measure a cell.

    Attributes:
        data_folder: where record files and logs are kept.
        rounds: samples of each pipeline, 3 to 9.
        tuning_seconds: InputTuner's time budget in each cell; None: by the number of rows.
        max_rows: of each workload; None for all.
    """

    data_folder: pathlib.Path
    rounds: int
    tuning_seconds: float | None = None
    max_rows: int | None = None


def run(cells: Sequence[results.Cell], settings: Settings) -> results.BenchmarkRecord:
    """Measures the cells and prints a line for each, and at the end the verdicts.

    A process of its own gives each cell the same free memory and idle thread pools. A workload
    whose data are missing is skipped; whatever else fails is reported as a gap.

    Args:
        cells: what to measure.
        settings: how.
    """
    started = time.monotonic()
    host = machine.describe()
    print(console.heading(host, cells, tuning_seconds=settings.tuning_seconds), flush=True)
    found: list[results.CellResult] = []
    gaps: list[str] = []
    missing: set[str] = set()
    for number, cell in enumerate(cells, start=1):
        if cell.workload in missing:
            continue
        cell_started = time.monotonic()
        position = f"[{number}/{len(cells)}]"
        try:
            found.append(_measured(cell, settings))
            seconds = time.monotonic() - cell_started
            print(console.line(position, found[-1], seconds=seconds), flush=True)
            continue
        except errors.UserError as error:
            missing.add(cell.workload)
            gaps.append(f"{cell.workload} skipped. {error}")
        except KeyboardInterrupt:
            gaps.append(f"Stopped by hand before {cell}.")
            break
        except errors.MeasurementError as error:
            gaps.append(f"{cell} failed. {error}")
        print(f"{position:>9}  {gaps[-1]}", flush=True)
    verdicts = targets.verdicts(found)
    print("", *verdicts, sep="\n")
    return results.BenchmarkRecord(
        host=host,
        versions=versions.installed(*_PACKAGES),
        rounds=settings.rounds,
        tuning_seconds=settings.tuning_seconds,
        max_rows=settings.max_rows,
        cells=tuple(found),
        gaps=tuple(gaps),
        verdicts=verdicts,
        seconds=time.monotonic() - started,
    )


def joined(
    before: results.BenchmarkRecord, now: results.BenchmarkRecord
) -> results.BenchmarkRecord:
    """Returns the later record with the cells that only the earlier one has, and new verdicts."""
    again = {result.cell for result in now.cells}
    kept = [result for result in before.cells if result.cell not in again]
    order = [*WORKLOADS]
    cells = tuple(sorted((*kept, *now.cells), key=lambda result: result.cell.position(order)))
    verdicts = targets.verdicts(cells)
    print("\nWith the cells measured before:", *verdicts, sep="\n")
    return now.model_copy(
        update={
            "cells": cells,
            "gaps": (*before.gaps, *now.gaps),
            "verdicts": verdicts,
            "seconds": before.seconds + now.seconds,
        }
    )


def _measured(cell: results.Cell, settings: Settings) -> results.CellResult:
    logs = settings.data_folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    values = isolate.run(
        _JOB,
        {
            "cell": cell.model_dump(),
            "data_folder": str(settings.data_folder),
            "rounds": settings.rounds,
            "tuning_seconds": settings.tuning_seconds,
            "max_rows": settings.max_rows,
        },
        timeout_seconds=_CELL_TIMEOUT_SECONDS,
        log_path=logs / f"{str(cell).replace(' ', '-')}.log",
    )
    return results.CellResult.model_validate(values)
