"""Formats the benchmark's output: a heading and a line for each cell."""

from collections.abc import Sequence

from benchmarks.input import results
from benchmarks.input.workloads import WORKLOADS
from tfx_perf.core import statistics

_LINE = "{:>9}  {:29} {:30} {:>21} {:>21} {:>21} {:>21} {:>13} {:>6}"


def heading(host: str, cells: Sequence[results.Cell], *, tuning_seconds: float | None) -> str:
    """Returns a description of the run, and the headings of the columns.

    Args:
        host: description of the machine.
        cells: the cells to measure.
        tuning_seconds: InputTuner's time budget in each cell.
    """
    names = dict.fromkeys(cell.workload for cell in cells)
    layouts = {
        consumer: sum(cell.consumer == consumer for cell in cells) for consumer in results.CONSUMERS
    }
    return "\n".join(
        [
            host,
            *(f"{name}: {WORKLOADS[name].description}, batch {WORKLOADS[name].batch_size}"
              for name in names),
            "Cells by consumer: "
            + ", ".join(f"{consumer} {count}" for consumer, count in layouts.items()),
            f"Each cell: InputTuner chooses within {_seconds(tuning_seconds)}, then all pipelines "
            "are measured in turns. Ratios of examples/s with 95% intervals, of fewer "
            "than six rounds with their range; fed: training speed "
            "with this input to that with one batch from memory, default > tuned.",
            "",
            _LINE.format(
                "", "workload shards files model", "InputTuner's choice", "tuned/default",
                "tuned/guide", "tuned/serial", "block/default", "fed", "s",
            ),
        ]
    )  # fmt: skip


def line(position: str, result: results.CellResult, *, seconds: float) -> str:
    """Returns the line of a cell.

    Args:
        position: e.g. `[3/42]`.
        result: the measurements of the cell.
        seconds: wall time of the whole cell.
    """
    fed = [result.ratio(name, results.REPEATED) for name in (results.DEFAULT, results.TUNED)]
    return _LINE.format(
        position,
        str(result.cell),
        result.chosen,
        *(
            _interval(result.ratio(numerator, denominator))
            for numerator, denominator in (
                (results.TUNED, results.DEFAULT),
                (results.TUNED, results.GUIDE),
                (results.TUNED, results.SERIAL),
                (results.BLOCK_READER, results.DEFAULT),
            )
        ),
        " > ".join(f"{ratio.value:.2f}" for ratio in fed) if all(fed) else "",
        f"{seconds:.0f}",
    )


def _interval(ratio: statistics.Interval | None) -> str:
    return f"{ratio.value:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]" if ratio else ""


def _seconds(tuning_seconds: float | None) -> str:
    return f"{tuning_seconds:g} s" if tuning_seconds else "40 s (60 s for a million rows)"
