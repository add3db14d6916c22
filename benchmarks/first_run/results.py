"""The results of the benchmark."""

from typing import ClassVar, Literal

from benchmarks.first_run import run_job
from tfx_perf.core import records, statistics

Kind = Literal["first", "second"]

_SLACK_SECONDS, _LONG_SECONDS = 5.0, 20.0


class Run(records.Record):
    """The wall times of the compared nodes.

    Attributes:
        stock_seconds: TFX's Trainer alone.
        first_seconds: by node, of the run that starts from nothing.
        second_seconds: by node, of the run after it.
    """

    stock_seconds: float
    first_seconds: dict[str, float]
    second_seconds: dict[str, float]

    def of(self, kind: Kind) -> dict[str, float]:
        """Returns the seconds of a run, by node."""
        return self.first_seconds if kind == "first" else self.second_seconds


class CellResult(records.Record):
    """One training with one Keras package.

    Attributes:
        training: a name in `TRAININGS`.
        line: the Keras package.
        runs: one for each round.
    """

    training: str
    line: str
    runs: tuple[Run, ...]

    @property
    def stock(self) -> statistics.Interval:
        """Seconds of the stock Trainer."""
        return statistics.median_interval([run.stock_seconds for run in self.runs])

    def ratio(self, kind: Kind) -> statistics.Interval:
        """Returns the chain's seconds over the stock Trainer's.

        Args:
            kind: of the run.
        """
        ours = [sum(run.of(kind).values()) for run in self.runs]
        return statistics.ratio_interval(ours, [run.stock_seconds for run in self.runs])

    def seconds(self, kind: Kind, node: str) -> float:
        """Returns the median wall time of a node in seconds."""
        times = [run.of(kind)[node] for run in self.runs]
        return statistics.median_interval(times).value

    def chain_seconds(self, kind: Kind) -> float:
        """Returns the wall time of the chain, the sum of the nodes' medians."""
        return sum(self.seconds(kind, node) for node in run_job.OURS)

    @property
    def verdict(self) -> str:
        """Whether the first run meets its target, and by how much it misses it."""
        stock = self.stock.value
        slack = 0.0 if stock >= _LONG_SECONDS else _SLACK_SECONDS
        over = self.chain_seconds("first") - stock - slack
        return "met" if over <= 0 else f"missed by {over:.1f} s"


class BenchmarkRecord(records.Record):
    """A whole benchmark.

    Attributes:
        host: description of the machine.
        versions: package to version.
        cells: what was measured.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.first_run_benchmark/1"

    host: str
    versions: dict[str, str]
    cells: tuple[CellResult, ...]
