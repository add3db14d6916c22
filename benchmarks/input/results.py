"""The results of the benchmark: cells, verdicts, and the machine they hold for."""

import itertools
from collections.abc import Sequence
from typing import ClassVar

from tfx_perf.core import records, statistics

GZIP, PLAIN = "gzip", "plain"
NO_MODEL, SMALL, HEAVY = "none", "small", "heavy"
CONSUMERS = (NO_MODEL, SMALL, HEAVY)

DEFAULT, SERIAL, GUIDE, GUIDE_CACHED = "default", "serial", "guide", "guide_cached"
BLOCK_READER, TUNED = "block_reader", "tuned"
PIPELINES = (DEFAULT, SERIAL, GUIDE, GUIDE_CACHED, BLOCK_READER, TUNED)
REPEATED = "repeated"  # one batch from memory, the upper limit for any input


class Cell(records.Record):
    """One combination of the grid.

    Attributes:
        workload: its name.
        shards: number of record files.
        compression: `gzip` or `plain`.
        consumer: `none`, or the model that trains on the batches.
    """

    workload: str
    shards: int
    compression: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.workload} {self.shards} {self.compression} {self.consumer}"

    def position(self, workloads: Sequence[str]) -> tuple[int, ...]:
        """Returns a key that sorts cells as in tables and plots.

        Args:
            workloads: their names in order.
        """
        consumer = CONSUMERS.index(self.consumer)
        return (workloads.index(self.workload), consumer, self.shards, self.compression == PLAIN)


class CellResult(records.Record):
    """The measurements of a cell.

    Attributes:
        cell: which one.
        batch_size: examples in a batch.
        row_count: examples in the split.
        data_bytes: size of the uncompressed records.
        chosen: the candidate that InputTuner chose.
        reason: InputTuner's explanation of the choice.
        dropped: by candidate, why InputTuner did not measure it.
        tuning_seconds: wall time of the search.
        resident_bytes: what the chosen candidate keeps in RAM; None if the default stayed.
        examples_per_second: pipeline to one rate a round; rounds were taken in turns, so that
            the i-th rates belong together.
        ratios: `numerator/denominator` to the median of paired ratios with its interval.
    """

    cell: Cell
    batch_size: int
    row_count: int
    data_bytes: int
    chosen: str
    reason: str
    dropped: dict[str, str]
    tuning_seconds: float
    resident_bytes: float | None
    examples_per_second: dict[str, tuple[float, ...]]
    ratios: dict[str, statistics.Interval]

    def ratio(self, numerator: str, denominator: str) -> statistics.Interval | None:
        """Returns how many times as fast one pipeline was as another, None if not measured."""
        return self.ratios.get(f"{numerator}/{denominator}")


def ratios_of(rates: dict[str, tuple[float, ...]]) -> dict[str, statistics.Interval]:
    """Returns all pipelines' ratios to the default and the repeated batch, and ours to the rest.

    Args:
        rates: as in `CellResult.examples_per_second`.
    """
    pairs = [(name, DEFAULT) for name in PIPELINES if name != DEFAULT]
    pairs += [(name, REPEATED) for name in PIPELINES]
    pairs += itertools.product((TUNED, BLOCK_READER), (GUIDE, GUIDE_CACHED, SERIAL))
    return {
        f"{numerator}/{denominator}": statistics.ratio_interval(
            rates[numerator], rates[denominator]
        )
        for numerator, denominator in pairs
        if numerator in rates and denominator in rates
    }


class Verdict(records.Record):
    """Whether a target was met.

    Attributes:
        target: what was wanted.
        met: None if no measurement decides it.
        evidence: the figures behind the verdict.
    """

    target: str
    met: bool | None
    evidence: str

    def __str__(self) -> str:
        outcome = {True: "PASS", False: "FAIL", None: "----"}[self.met]
        return f"{outcome}  {self.target}: {self.evidence}"


class BenchmarkRecord(records.Record):
    """One run of the benchmark.

    Attributes:
        host: description of the machine: processor, CPUs and memory.
        versions: package to version.
        rounds: samples of each pipeline in a cell.
        tuning_seconds: InputTuner's time budget in a cell; None: by the number of rows.
        max_rows: of each workload; None for all.
        cells: the cells that were measured.
        gaps: cells or workloads that could not be measured, and why.
        verdicts: one for each target.
        seconds: wall time of the run.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.input_benchmark/1"

    host: str
    versions: dict[str, str | None]
    rounds: int
    tuning_seconds: float | None
    max_rows: int | None
    cells: tuple[CellResult, ...]
    gaps: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    seconds: float
