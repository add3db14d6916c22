"""`python -m benchmarks.training`: see `--help`."""

import dataclasses
import pathlib

import click

from benchmarks import machine, options
from benchmarks.training import results, run, targets
from benchmarks.training.workloads import NAMES, WORKLOADS
from tfx_perf.core import errors, formatting, statistics
from tfx_perf.hardware import versions

_PACKAGES = ("tensorflow", "keras", "tf-keras", "tfx")
_LINE = "{:22} {:>18} {:>18} {:>6} {:>8} {:>9} {:>7}  {}"


@click.command()
@click.option("--workload", "names", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--line", "lines", type=click.Choice(results.LINES), multiple=True,
              default=results.LINES, help="Keras line.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=12, show_default=True,
              help="Blocks of each training of a cell, in turns.")  # fmt: skip
@click.option("--regret/--no-regret", default=True, help="Measure all plans, too.")
@click.option("--quick", is_flag=True, help="Two rounds, few steps: to see whether it runs.")
@options.DATA
@options.JSON
@options.ADD
def main(
    names: tuple[str, ...],
    lines: tuple[str, ...],
    *,
    rounds: int,
    regret: bool,
    quick: bool,
    data: pathlib.Path,
    json_path: pathlib.Path | None,
    add: bool,
) -> None:
    """Compares OptimizedTrainer with TFX's stock Trainer, and its plan with every other one."""
    json_path = json_path or data / "training_benchmark.json"
    settings = run.Settings(data_folder=data, rounds=rounds, regret=regret)
    if quick:
        settings = dataclasses.replace(settings, rounds=2, taxi_steps=250)
    cells = [results.Cell(workload=name, line=line) for name in names for line in lines]
    before = results.BenchmarkRecord.read(json_path) if add and json_path.exists() else None
    kept = [result for result in before.cells if result.cell not in cells] if before else []
    found, gaps = [], []
    for name in dict.fromkeys(names):
        if name in WORKLOADS:
            click.echo(f"{name}: {WORKLOADS[name].description}, batch {WORKLOADS[name].batch_size}")
    click.echo(
        "Stock step time over ours; tuned: with InputTuner; whole: a training of "
        f"{results.LONG_STEPS:,} steps, trials included.\n"
    )
    click.echo(
        _LINE.format("", "ours", "tuned", "whole", "pay back", "plan only", "regret", "plan")
    )
    for cell in cells:
        try:
            found.append(run.measure(cell, settings))
            click.echo(_row(found[-1]))
        except (errors.UserError, errors.MeasurementError) as error:
            gaps.append(f"{cell}: {error}")
            click.echo(gaps[-1])
        record = results.BenchmarkRecord(
            host=machine.describe(),
            versions=versions.installed(*_PACKAGES),
            rounds=settings.rounds,
            cells=(*kept, *found),
            gaps=tuple(gaps),
            verdicts=targets.verdicts((*kept, *found)),
        )
        record.write(json_path)  # after every cell, as the benchmark takes an hour
    click.echo("\n" + "\n".join(record.verdicts) + f"\n\nWrote {json_path}")


def _row(result: results.CellResult) -> str:
    ours = results.OPTIMIZED if results.OPTIMIZED in result.runs else results.TUNED
    steps, regret = result.pay_back_steps(ours), result.regret
    return _LINE.format(
        str(result.cell),
        _ratio(result.steady_ratio(results.OPTIMIZED)),
        _ratio(result.steady_ratio(results.TUNED)),
        f"{result.whole_ratio(ours):.3g}",
        "never" if steps is None else f"{steps:.0f}",
        f"{regret.speedups[regret.chosen].value:.2f}" if regret else formatting.MISSING,
        f"{regret.regret_ratio:.1%}" if regret else formatting.MISSING,
        regret.chosen if regret else result.runs[ours].plan,
    )


def _ratio(interval: statistics.Interval | None) -> str:
    if interval is None:
        return formatting.MISSING
    return f"{interval.value:.3g} ({interval.low:.3g}-{interval.high:.3g})"


if __name__ == "__main__":
    main()
