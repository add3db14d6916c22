"""`python -m benchmarks.distribution`: see `--help`."""

import json
import pathlib
import socket
from typing import ClassVar

import click

from benchmarks import machine, options
from benchmarks.distribution import worker_job, worker_processes
from tfx_perf.core import records, statistics
from tfx_perf.hardware import versions

_PACKAGES = ("tensorflow", "keras", "tf-keras")
_LINE = "{:8} {:10} {:>12} {:>12}   {}"


class CellResult(records.Record):
    """One model with one Keras package.

    Attributes:
        model: a name in `worker_job.MODELS`.
        package: the Keras package.
        plain_step_seconds: of Keras' `fit`, one for each round.
        planned_step_seconds: of the plan, with several steps per call, likewise.
    """

    model: str
    package: str
    plain_step_seconds: tuple[float, ...]
    planned_step_seconds: tuple[float, ...]

    @property
    def speedup(self) -> statistics.Interval:
        """How many times as fast the plan is."""
        return statistics.ratio_interval(self.plain_step_seconds, self.planned_step_seconds)


class BenchmarkRecord(records.Record):
    """A whole benchmark.

    Attributes:
        host: description of the machine.
        versions: package to version.
        worker_count: how many workers trained together, all on this machine.
        cells: what was measured.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.distribution_benchmark/1"

    host: str
    versions: dict[str, str]
    worker_count: int
    cells: tuple[CellResult, ...]


@click.command()
@click.option("--workers", "worker_count", type=click.IntRange(min=2), default=2, show_default=True,
              help="Processes of this machine.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=3), default=7, show_default=True,
              help="Blocks of Keras fit and of the plan, in turns.")  # fmt: skip
@options.DATA
@options.JSON
def main(
    worker_count: int, *, rounds: int, data: pathlib.Path, json_path: pathlib.Path | None
) -> None:
    """Compares the steps of several workers under Keras fit with those of the plan they get."""
    json_path = json_path or data / "distribution_benchmark.json"
    json_path.parent.mkdir(parents=True, exist_ok=True)
    click.echo(_LINE.format("model", "Keras", "plain, ms", "planned, ms", "speedup"))
    cells = []
    for name in worker_job.MODELS:
        for package in ("keras", "tf_keras"):
            found = _trained(name, package, worker_count=worker_count, rounds=rounds)
            cells.append(
                CellResult(
                    model=name,
                    package=package,
                    plain_step_seconds=tuple(found["plain"]),
                    planned_step_seconds=tuple(found["planned"]),
                )
            )
            click.echo(_row(cells[-1]))
    BenchmarkRecord(
        host=machine.describe(),
        versions=versions.installed(*_PACKAGES),
        worker_count=worker_count,
        cells=tuple(cells),
    ).write(json_path)
    click.echo(f"\nWrote {json_path}")


def _trained(name: str, package: str, *, worker_count: int, rounds: int) -> dict[str, list[float]]:
    """Returns the first worker's measurements."""
    said = worker_processes.last_line_of_first(
        worker_job.__name__,
        [name, package, str(rounds)],
        hosts=[f"localhost:{_free_port()}" for _ in range(worker_count)],
    )
    found: dict[str, list[float]] = json.loads(said)
    return found


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port: int = taken.getsockname()[1]
        return port


def _row(cell: CellResult) -> str:
    plain, planned = (
        1e3 * statistics.median_interval(times).value
        for times in (cell.plain_step_seconds, cell.planned_step_seconds)
    )
    return _LINE.format(cell.model, cell.package, f"{plain:.2f}", f"{planned:.2f}", cell.speedup)


if __name__ == "__main__":
    main()
