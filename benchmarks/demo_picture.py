"""`python -m benchmarks.demo_picture SUMMARY.json FILE`: draws `tfx-perf demo` for README."""

import json
import pathlib

import click
from matplotlib import figure, patches

from tfx_perf.cli import demo

_TRAINERS = {"stock Trainer": "#9aa7b4", "by hand": "#5b7c99", "tfx-perf": "#d98a29"}


@click.command()
@click.argument("summary", type=click.Path(exists=True, path_type=pathlib.Path))
@click.argument("path", type=click.Path())
def main(summary: pathlib.Path, path: str) -> None:
    """Draws wall time and training speed of each batch size as bars."""
    runs = json.loads(summary.read_text(encoding="utf-8"))["runs"]
    drawing = figure.Figure(figsize=(9, 1.3 + 1.1 * len(runs)), layout="constrained")
    waiting, training = drawing.subplots(1, 2)
    for row, run in enumerate(runs):
        waits = demo.wall_times(run["node_time_seconds"])
        rates = [run[key]["examples_per_second"] for key in ("stock", "by_hand", "optimized")]
        speeds = [rate / rates[0] for rate in rates]
        for axes, values, unit in ((waiting, waits, " s"), (training, speeds, " times")):
            for place, (value, color) in enumerate(zip(values, _TRAINERS.values(), strict=True)):
                bar = axes.barh(row + 0.27 * (place - 1), value, 0.24, color=color)
                axes.bar_label(bar, [f"{value:.3g}{unit}"], padding=3, fontsize=9)
    for axes, title in (
        (waiting, "wall time of the first run, tuning included"),
        (training, "training speed over the stock Trainer's"),
    ):
        axes.set_title(title, fontsize=11)
        axes.set_yticks(range(len(runs)), [f"batch {run['batch_size']:,}" for run in runs])
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.set_xticks([])
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    bars = [patches.Patch(color=color) for color in _TRAINERS.values()]
    drawing.legend(bars, _TRAINERS, loc="outside lower center", ncols=3, frameon=False)
    drawing.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
