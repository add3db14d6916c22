"""What InputTuner found out."""

from typing import ClassVar, Literal

from tfx_perf import records, statistics
from tfx_perf.input import parameters as parameters_lib

DEFAULT = "default"
FILE_NAME = "plan.json"


class CandidateOutcome(records.Record):
    """What became of one candidate.

    Attributes:
        name: of the candidate.
        description: how it works.
        status: `chosen`; `measured` but not chosen; or `dropped` without a figure.
        reason: why it was dropped or not chosen; empty for the chosen one.
        examples_per_second: median over the rounds.
        cpu_seconds_per_example: CPU time of all threads, median over the rounds.
        ratio: to the default, median over the rounds.
        preparation_seconds: from the first call to the first batch.
        resident_bytes: what it keeps in RAM: the size of its tables, or how much the
            process grew while it was prepared and checked, whichever is more.
    """

    name: str
    description: str
    status: Literal["chosen", "measured", "dropped"]
    reason: str = ""
    examples_per_second: statistics.Interval | None = None
    cpu_seconds_per_example: float | None = None
    ratio: statistics.Interval | None = None
    preparation_seconds: float | None = None
    resident_bytes: float | None = None


class TuningRecord(records.Record):
    """The choice, and all that led to it.

    Attributes:
        chosen: name of the candidate to use.
        reason: why, in a sentence.
        parameters: what the candidate must be made with.
        outcomes: every candidate, the default first.
        batch_size: examples in a batch while measuring.
        rounds: how often each candidate was measured, in turns.
        margin: how much faster than the default a candidate had to be.
        memory_budget_bytes: what a candidate was allowed to hold.
        memory_budget_configured: whether the user set it; otherwise whoever applies the plan
            takes half of the memory that is free there.
        example_count: examples in the split; None if they were not counted.
        checked_example_count: how many examples the contents were compared on.
        file_count: record files.
        file_bytes: their size on disk.
        compression: `GZIP` or the empty string.
        tuning_time_seconds: wall time of the search.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.input/2"

    chosen: str
    reason: str
    parameters: parameters_lib.Parameters = parameters_lib.Parameters()
    outcomes: tuple[CandidateOutcome, ...]
    batch_size: int
    rounds: int
    margin: float
    memory_budget_bytes: int
    memory_budget_configured: bool
    example_count: int | None
    checked_example_count: int
    file_count: int
    file_bytes: int
    compression: str
    tuning_time_seconds: float

    def outcome(self, name: str) -> CandidateOutcome:
        """Returns the outcome of a candidate by name."""
        return next(outcome for outcome in self.outcomes if outcome.name == name)

    def figures(self) -> dict[str, float | None]:
        """Returns the figures by their keys in `tfx_perf.metrics.CATALOGUE`."""
        default, chosen = self.outcome(DEFAULT), self.outcome(self.chosen)
        measured = [outcome for outcome in self.outcomes if outcome.examples_per_second]
        return {
            "candidate_count": len([outcome for outcome in measured if outcome is not default]),
            "default_examples_per_second": _value(default.examples_per_second),
            "tuned_examples_per_second": _value(chosen.examples_per_second),
            "input_speedup_ratio": _value(chosen.ratio),
            "input_memory_bytes": chosen.resident_bytes,
            "input_preparation_seconds": chosen.preparation_seconds,
            "tuning_time_seconds": self.tuning_time_seconds,
        }


def _value(interval: statistics.Interval | None) -> float | None:
    return interval.value if interval else None
