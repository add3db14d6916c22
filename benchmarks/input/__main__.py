"""`python -m benchmarks.input`: see `--help`."""

import pathlib

import click

from benchmarks import options
from benchmarks.input import grid, plot, results
from benchmarks.input import run as run_lib
from benchmarks.input.workloads import WORKLOADS

_ROOT = pathlib.Path(__file__).parents[2]
_PATH = click.Path(path_type=pathlib.Path)
_QUICK_ROWS, _QUICK_TUNING_SECONDS = 3000, 5.0


class _List(click.ParamType):
    """Comma-separated values, each of which must be known."""

    name = "list"

    def __init__(self, known: tuple[object, ...]) -> None:
        self._known = {str(value): value for value in known}

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Returns the values as a tuple."""
        if not isinstance(value, str):
            return value
        names = value.split(",")
        for name in names:
            if name not in self._known:
                self.fail(f"{name!r} is not one of {', '.join(self._known)}.", param, ctx)
        return tuple(self._known[name] for name in names)


def _list_option(name: str, known: tuple[object, ...], help_text: str) -> click.Option:
    return click.option(
        name, type=_List(known), default=known, show_default=",".join(map(str, known)),
        help=help_text,
    )  # fmt: skip


@click.command()
@_list_option("--workloads", tuple(WORKLOADS), "Data sets.")
@_list_option("--shards", grid.SHARDS, "Numbers of record files.")
@_list_option("--compressions", grid.COMPRESSIONS, "Kinds of record files.")
@click.option(
    "--consumers",
    type=_List(results.CONSUMERS),
    help="For every layout: no model, the small, the heavy one. Without it the models train "
    "on 12 gzip shards only.",
)
@click.option("--full", is_flag=True, help="All consumers on every layout.")
@click.option("--rounds", type=click.IntRange(3, 9), default=3, show_default=True,
              help="Samples of each pipeline in a cell.")  # fmt: skip
@click.option("--tuning-seconds", type=float, show_default="40, large 60, quick 5",
              help="InputTuner's time budget in each cell.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Few rows, little time: to see whether it runs.")
@click.option("--data", type=_PATH, default=_ROOT / ".benchmark-data",
              help="Folder for record files, about 4 GB.")  # fmt: skip
@click.option("--json", "json_path", type=_PATH, show_default="in --data",
              help="Where to write the figures; the plot goes beside it.")  # fmt: skip
@options.ADD
def main(
    workloads: tuple[str, ...],
    shards: tuple[int, ...],
    compressions: tuple[str, ...],
    consumers: tuple[str, ...] | None,
    *,
    full: bool,
    rounds: int,
    tuning_seconds: float | None,
    quick: bool,
    data: pathlib.Path,
    json_path: pathlib.Path | None,
    add: bool,
) -> None:
    """Compares InputTuner's choice with TFXIO's default and hand-written pipelines."""
    cells = grid.cells(
        workloads=workloads,
        shards=shards,
        compressions=compressions,
        consumers=results.CONSUMERS if full else consumers,
    )
    settings = run_lib.Settings(
        data_folder=data,
        rounds=rounds,
        tuning_seconds=tuning_seconds or (_QUICK_TUNING_SECONDS if quick else None),
        max_rows=_QUICK_ROWS if quick else None,
    )
    json_path = json_path or data / "input_benchmark.json"
    before = results.BenchmarkRecord.read(json_path) if add and json_path.exists() else None
    record = run_lib.run(cells, settings)
    if before:
        record = run_lib.joined(before, record)
    record.write(json_path)
    plot_path = json_path.with_suffix(".png")
    plot.draw(record, plot_path)
    print(f"\nWrote {json_path} and {plot_path}")


if __name__ == "__main__":
    main()
