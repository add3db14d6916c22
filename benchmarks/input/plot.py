"""The plot of a run."""

import pathlib
from collections.abc import Sequence

from matplotlib import figure, ticker

from benchmarks.input import results

_INCHES_PER_ROW, _INCHES_AROUND = 0.24, 1.6
_STYLES = {
    results.SERIAL: ("#9aa7b4", "v", "serial"),
    results.GUIDE: ("#30506e", "o", "TensorFlow's guide"),
    results.GUIDE_CACHED: ("#8a5a9e", "s", "guide with cache()"),
    results.BLOCK_READER: ("#1b7f4b", "D", "block reader"),
    results.TUNED: ("#d98c2b", "*", "InputTuner's choice"),
}
_DEFAULT_STYLE = ("#30506e", "o", "TFXIO's default")


def draw(record: results.BenchmarkRecord, path: pathlib.Path) -> None:
    """Draws the pipelines alone beside the trained models, as PNG.

    Args:
        record: the run.
        path: where to write.
    """
    alone = [cell for cell in record.cells if results.REPEATED not in cell.examples_per_second]
    trained = [cell for cell in record.cells if results.REPEATED in cell.examples_per_second]
    parts = [part for part in (alone, trained) if part]
    rows = max(map(len, parts), default=1)
    drawing = figure.Figure(
        figsize=(7.5 * max(len(parts), 1), rows * _INCHES_PER_ROW + _INCHES_AROUND),
        layout="constrained",
    )
    panels = drawing.subplots(1, max(len(parts), 1), squeeze=False)[0]
    for axes, cells in zip(panels, parts, strict=False):
        if cells is alone:
            _alone(axes, cells)
        else:
            _trained(axes, cells)
    drawing.suptitle(f"{record.host}; TensorFlow {record.versions['tensorflow']}", fontsize=9)
    drawing.savefig(path, dpi=110)


def _alone(axes: "figure.Axes", cells: Sequence[results.CellResult]) -> None:
    labels = [f"{c.cell.workload}, {c.cell.shards} {c.cell.compression}" for c in cells]
    for name, style in _STYLES.items():
        _points(axes, cells, numerator=name, denominator=results.DEFAULT, style=style)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    _finish(axes, labels, "examples per second, times TFXIO's default (batches only taken)")


def _trained(axes: "figure.Axes", cells: Sequence[results.CellResult]) -> None:
    labels = [
        f"{c.cell.workload}, {c.cell.shards} {c.cell.compression}, {c.cell.consumer} model"
        for c in cells
    ]
    for name in (results.DEFAULT, results.TUNED):
        style = _STYLES.get(name, _DEFAULT_STYLE)
        _points(axes, cells, numerator=name, denominator=results.REPEATED, style=style)
    axes.set_xlim(left=0)
    _finish(axes, labels, "fed ratio: training speed with this input / with a batch from memory")


def _points(
    axes: "figure.Axes",
    cells: Sequence[results.CellResult],
    *,
    numerator: str,
    denominator: str,
    style: tuple[str, str, str],
) -> None:
    color, marker, label = style
    for row, cell in enumerate(cells):
        if ratio := cell.ratio(numerator, denominator):
            axes.plot([ratio.low, ratio.high], [row, row], color=color, linewidth=1)
            axes.plot(ratio.value, row, marker, color=color, markersize=6, label=label)
            label = None  # once in the legend


def _finish(axes: "figure.Axes", labels: Sequence[str], xlabel: str) -> None:
    axes.axvline(1, color="#1d2733", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="both", color="#e6e9ed", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(xlabel, fontsize=9)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=8)
