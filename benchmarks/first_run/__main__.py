"""`python -m benchmarks.first_run`: see `--help`."""

import functools
import pathlib
import shutil

import click

from benchmarks import machine, options
from benchmarks.first_run import results, run_job
from benchmarks.first_run.trainings import TRAININGS
from tfx_perf import isolate
from tfx_perf.hardware import versions

_PACKAGES = ("tensorflow", "keras", "tf-keras", "tfx")
_LINE = "{:22} {:>8} {:>8} {:>24} {:>8} {:>6}  {}"
_TIMEOUT_SECONDS = 3 * 3600.0


@click.command()
@click.option("--training", "names", type=click.Choice(list(TRAININGS)), multiple=True,
              default=tuple(TRAININGS), help="May be repeated; by default all.")  # fmt: skip
@click.option("--line", "wanted", help="One Keras package only.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True,
              help="Stock, first and second run, in turns.")  # fmt: skip
@options.DATA
@options.JSON
@options.ADD
def main(
    names: tuple[str, ...],
    *,
    wanted: str | None,
    rounds: int,
    data: pathlib.Path,
    json_path: pathlib.Path | None,
    add: bool,
) -> None:
    """Compares the wall time of the stock Trainer with the whole chain's, at default settings."""
    json_path = json_path or data / "first_run_benchmark.json"
    data.mkdir(parents=True, exist_ok=True)
    cells = [
        (name, line)
        for name in dict.fromkeys(names)
        for line in TRAININGS[name].lines
        if wanted in (None, line)
    ]
    before = results.BenchmarkRecord.read(json_path).cells if add and json_path.exists() else ()
    found = [cell for cell in before if (cell.training, cell.line) not in cells]
    nodes = "InputTuner + MemoryProfiler + OptimizedTrainer"
    click.echo(f"Wall time in seconds; of the first run by node: {nodes}.\n")
    click.echo(_LINE.format("", "stock", "first", "by node", "second", "ratio", "target"))
    for name, line in cells:
        runs = [_round(name, line, data) for _ in range(rounds)]
        found.append(results.CellResult(training=name, line=line, runs=tuple(runs)))
        click.echo(_row(found[-1]))
        record = results.BenchmarkRecord(
            host=machine.describe(), versions=versions.installed(*_PACKAGES), cells=tuple(found)
        )
        record.write(json_path)  # after every cell, as the benchmark takes hours
    click.echo(f"\nWrote {json_path}")


def _round(name: str, line: str, data: pathlib.Path) -> results.Run:
    folder = data / f"first-run-{name}-{line}"  # kept until the next run, for inspection
    shutil.rmtree(folder, ignore_errors=True)
    run = functools.partial(_run, name, line, data)
    stock = run(folder=folder / "stock", label="1", is_stock=True)
    first = run(folder=folder / "ours", label="1", is_stock=False)
    second = run(folder=folder / "ours", label="2", is_stock=False)
    return results.Run(
        stock_seconds=stock[run_job.STOCK],
        first_seconds={node: first[node] for node in run_job.OURS},
        second_seconds={node: second[node] for node in run_job.OURS},
    )


def _run(
    name: str, line: str, data: pathlib.Path, *, folder: pathlib.Path, label: str, is_stock: bool
) -> dict[str, float]:
    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = isolate.run(
        f"{run_job.__name__}:{run_job.run.__name__}",
        {
            "training": name,
            "line": line,
            "is_stock": is_stock,
            "label": label,
            "folder": str(folder.absolute()),
            "data_folder": str(data.absolute()),
        },
        timeout_seconds=_TIMEOUT_SECONDS,
        log_path=folder / f"{label}.log",
        environment={"TF_USE_LEGACY_KERAS": "1" if line == "tf_keras" else "0"},
    )
    return seconds


def _row(cell: results.CellResult) -> str:
    by_node = " + ".join(f"{cell.seconds('first', node):.1f}" for node in run_job.OURS)
    return _LINE.format(
        f"{cell.training} {cell.line}",
        f"{cell.stock.value:.1f}",
        f"{cell.chain_seconds('first'):.1f}",
        by_node,
        f"{cell.chain_seconds('second'):.1f}",
        f"{cell.ratio('first').value:.2f}",
        cell.verdict,
    )


if __name__ == "__main__":
    main()
