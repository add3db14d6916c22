"""What the benchmark found."""

from typing import ClassVar

from benchmarks.first_run import run_job
from tfx_perf import records, statistics

_SLACK_SECONDS, _LONG_SECONDS = 5.0, 60.0


class Run(records.Record):
    """The wall time of the nodes that count, in seconds.

    Attributes:
        stock: TFX's Trainer alone.
        first: by node, of the run that begins with nothing.
        second: by node, of the run after it.
    """

    stock: float
    first: dict[str, float]
    second: dict[str, float]


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
        return statistics.median_interval([run.stock for run in self.runs])

    def ratio(self, kind: str) -> statistics.Interval:
        """Returns the chain's seconds over the stock Trainer's.

        Args:
            kind: `first` or `second`.
        """
        ours = [sum(getattr(run, kind).values()) for run in self.runs]
        return statistics.ratio_interval(ours, [run.stock for run in self.runs])

    def seconds(self, kind: str, node: str) -> float:
        """Returns the median wall time of a node in seconds."""
        times = [getattr(run, kind)[node] for run in self.runs]
        return statistics.median_interval(times).value

    def chain_seconds(self, kind: str) -> float:
        """Returns the wall time of the chain, the sum of the nodes' medians."""
        return sum(self.seconds(kind, node) for node in run_job.OURS)

    @property
    def verdict(self) -> str:
        """Whether the first run is as fast as it has to be."""
        stock = self.stock.value
        slack = 0.0 if stock >= _LONG_SECONDS else _SLACK_SECONDS
        over = self.chain_seconds("first") - stock - slack
        return "met" if over <= 0 else f"missed by {over:.1f} s"


class BenchmarkRecord(records.Record):
    """A whole benchmark.

    Attributes:
        host: the machine, in words.
        versions: package to version.
        cells: what was measured.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.first_run_benchmark/1"

    host: str
    versions: dict[str, str]
    cells: tuple[CellResult, ...]
