"""`python -m benchmarks.distribution.reductions`: see `--help`."""

import json
import pathlib
import statistics
from typing import ClassVar

import click

from benchmarks import machine, options
from benchmarks.distribution import reductions_job, shaped_network, worker_processes
from tfx_perf.core import records
from tfx_perf.hardware import versions

_PACKAGES = ("tensorflow", "keras", "tf-keras")
_PORT = 2222
_LINE = "{:>10} {:>10} {:>9} {:>9} {:>10}"


class CellResult(records.Record):
    """Two workers that sum their gradients in one type, on links of one bandwidth.

    Attributes:
        megabits_per_second: of each link, in each direction.
        sent: the type in which gradients are summed.
        step_time_seconds: one for each block; the types take turns.
        loss: mean over the last block's measured steps; all types train for equally many steps.
    """

    megabits_per_second: int
    sent: str
    step_time_seconds: tuple[float, ...]
    loss: float


class ReductionsRecord(records.Record):
    """A whole benchmark.

    Attributes:
        host: description of the machine.
        versions: package to version.
        package: the Keras package.
        cells: what was measured.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.reductions_benchmark/1"

    host: str
    versions: dict[str, str]
    package: str
    cells: tuple[CellResult, ...]


@click.command()
@click.option("--megabits", type=click.IntRange(min=1), multiple=True, default=(100, 400),
              show_default=True, help="Bandwidth of each link.")  # fmt: skip
@click.option("--package", type=click.Choice(["keras", "tf_keras"]), default="keras",
              show_default=True)  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True,
              help="Measured steps of a block, after as many unmeasured ones.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True,
              help="Blocks of each.")  # fmt: skip
@options.DATA
@options.JSON
def main(
    megabits: tuple[int, ...],
    *,
    package: str,
    steps: int,
    rounds: int,
    data: pathlib.Path,
    json_path: pathlib.Path | None,
) -> None:
    """Compares types in which two workers sum their gradients, on limited links."""
    json_path = json_path or data / "reductions_benchmark.json"
    json_path.parent.mkdir(parents=True, exist_ok=True)
    click.echo(_LINE.format("Mbit/s", "sent", "step, ms", "speedup", "loss"))
    cells = []
    for rate in megabits:
        with shaped_network.links(2, bits_per_second=rate * 10**6) as places:
            said = worker_processes.last_line_of_first(
                reductions_job.__name__,
                [package, str(steps), str(rounds)],
                hosts=[f"{address}:{_PORT}" for _, address in places],
                prefixes=[["ip", "netns", "exec", name] for name, _ in places],
            )
        found = [
            CellResult(
                megabits_per_second=rate,
                sent=sent,
                step_time_seconds=tuple(seconds for seconds, _ in blocks),
                loss=blocks[-1][1],
            )
            for sent, blocks in json.loads(said).items()
        ]
        for cell in found:
            click.echo(_row(cell, found[0]))
        cells += found
    ReductionsRecord(
        host=machine.describe(),
        versions=versions.installed(*_PACKAGES),
        package=package,
        cells=tuple(cells),
    ).write(json_path)
    click.echo(f"\nWrote {json_path}")


def _row(cell: CellResult, own: CellResult) -> str:
    pairs = zip(own.step_time_seconds, cell.step_time_seconds, strict=True)
    return _LINE.format(
        cell.megabits_per_second,
        cell.sent,
        f"{statistics.median(cell.step_time_seconds) * 1e3:.0f}",
        f"{statistics.median(before / after for before, after in pairs):.2f}",
        f"{cell.loss:.5f}",
    )


if __name__ == "__main__":
    main()
