"""`python -m benchmarks.distribution.scaling`: see `--help`."""

import pathlib
from typing import ClassVar

import click

from benchmarks import machine, options
from benchmarks.distribution import scaling_job, shaped_network, worker_processes
from tfx_perf.core import records
from tfx_perf.hardware import versions
from tfx_perf.training import scaling
from tfx_perf.training.measuring.accounts import CommunicationAccount

_PACKAGES = ("tensorflow", "keras", "tf-keras")
_PORT = 2222
_LINE = "{:>10} {:>8} {:>13} {:>14} {:>7}"


class CellResult(records.Record):
    """A training with one number of workers on links of one bandwidth.

    Attributes:
        megabits_per_second: of each link, in each direction.
        workers: how many.
        step_time_seconds: as measured.
        predicted_seconds: from the measurements of two workers on the same links.
    """

    megabits_per_second: int
    workers: int
    step_time_seconds: float
    predicted_seconds: float

    @property
    def error_ratio(self) -> float:
        """The error of the prediction, relative to the measured time."""
        return self.predicted_seconds / self.step_time_seconds - 1


class ScalingRecord(records.Record):
    """A whole benchmark.

    Attributes:
        host: description of the machine.
        versions: package to version.
        package: the Keras package.
        cells: what was measured.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.scaling_benchmark/1"

    host: str
    versions: dict[str, str]
    package: str
    cells: tuple[CellResult, ...]


@click.command()
@click.option("--megabits", type=click.IntRange(min=1), multiple=True, default=(100, 400),
              show_default=True, help="Bandwidth of each link.")  # fmt: skip
@click.option("--most-workers", type=click.IntRange(min=3), default=4, show_default=True,
              help="Largest number of workers.")  # fmt: skip
@click.option("--package", type=click.Choice(["keras", "tf_keras"]), default="keras",
              show_default=True)  # fmt: skip
@click.option("--steps", type=click.IntRange(min=40), default=40, show_default=True)
@options.DATA
@options.JSON
def main(
    megabits: tuple[int, ...],
    *,
    most_workers: int,
    package: str,
    steps: int,
    data: pathlib.Path,
    json_path: pathlib.Path | None,
) -> None:
    """Compares steps of more workers with what two of them predict, on links that are limited."""
    json_path = json_path or data / "scaling_benchmark.json"
    json_path.parent.mkdir(parents=True, exist_ok=True)
    click.echo(_LINE.format("Mbit/s", "workers", "measured, ms", "predicted, ms", "error"))
    cells = []
    for rate in megabits:
        of_two = None
        for count in range(2, most_workers + 1):
            account = _trained(count, package, steps=steps, bits_per_second=rate * 10**6)
            of_two = of_two or account
            cells.append(
                CellResult(
                    megabits_per_second=rate,
                    workers=count,
                    step_time_seconds=account.step_time_seconds,
                    predicted_seconds=scaling.step_time_seconds(of_two, count),
                )
            )
            click.echo(_row(cells[-1]))
    ScalingRecord(
        host=machine.describe(),
        versions=versions.installed(*_PACKAGES),
        package=package,
        cells=tuple(cells),
    ).write(json_path)
    click.echo(f"\nWrote {json_path}")


def _trained(count: int, package: str, *, steps: int, bits_per_second: int) -> CommunicationAccount:
    """Returns the first worker's measurements."""
    with shaped_network.links(count, bits_per_second=bits_per_second) as places:
        said = worker_processes.last_line_of_first(
            scaling_job.__name__,
            [package, str(steps)],
            hosts=[f"{address}:{_PORT}" for _, address in places],
            prefixes=[["ip", "netns", "exec", name] for name, _ in places],
        )
    return CommunicationAccount.model_validate_json(said)


def _row(cell: CellResult) -> str:
    return _LINE.format(
        cell.megabits_per_second,
        cell.workers,
        f"{cell.step_time_seconds * 1e3:.0f}",
        f"{cell.predicted_seconds * 1e3:.0f}",
        f"{cell.error_ratio:+.0%}",
    )


if __name__ == "__main__":
    main()
