"""The results of InputTuner."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import pydantic

from tfx_perf.core import records, statistics
from tfx_perf.core.records import Advice
from tfx_perf.input import measure
from tfx_perf.input.candidates.candidate import DEFAULT
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.shuffle import ShuffleQuality

FILE_NAME = "plan.json"

# Most undecided searches in a row: each may cost half of what a faster input can save.
_MOST_SEARCHES = 2


class CandidateOutcome(records.Record):
    """The result for one candidate; rates and ratio (to the default) are medians over the rounds.

    Attributes:
        cpu_seconds_per_example: CPU time of all threads.
        preparation_seconds: time from the first call to the first batch.
        resident_bytes: size of its tables or growth of the process, whichever is larger.
        peak_memory_bytes: largest growth of the process while it was prepared and checked.
        needed_bytes: least memory needed, if over the budget; otherwise None.
    """

    REMOVED: ClassVar[frozenset[str]] = frozenset({"cold_examples_per_second"})

    name: str
    description: str
    status: Literal["chosen", "measured", "dropped"]
    reason: str = ""
    examples_per_second: statistics.Interval | None = None
    cpu_seconds_per_example: float | None = None
    ratio: statistics.Interval | None = None
    preparation_seconds: float | None = None
    resident_bytes: float | None = None
    peak_memory_bytes: float | None = None
    needed_bytes: float | None = None
    shuffle: ShuffleQuality | None = None


class Confirmation(records.Record):
    """The best candidate compared with the default on new samples.

    The number of samples does not depend on their values. `fed_ratio` is relative to one batch
    repeated from memory: 1 means no faster input could help. It is None without a train step.
    """

    candidate: str
    on_train_step: bool
    default_examples_per_second: statistics.Interval
    tuned_examples_per_second: statistics.Interval
    ratio: statistics.Interval
    fed_ratio: statistics.Interval | None
    rounds: int


class MeasuredData(records.Record):
    """The data that a plan was measured on, if the plan is reused for other data."""

    file_count: int
    file_bytes: int
    example_count: int | None


class TuningRecord(records.Record):
    """The choice, and everything that led to it.

    Attributes:
        memory_budget_configured: whether the user set the budget; otherwise the process that
            applies the plan takes half of the memory that is free there.
        batch_size: the measured batch size; that of the training code if there was any.
        trained_example_count: examples that one training reads; None if unknown.
        training_digest: digest of the training code and its arguments; empty if there was none.
        checked_example_count: examples whose contents were compared; 0 if the default is reused.
        examined_state: `files_digest` of the examined files; empty if none, and in older plans.
        tuning_time_seconds: wall time of the search; for a reused plan, of the original one.
        expected_runs: trainings that the search was made for; None in plans of earlier versions.
        key: fingerprints by name of what the choice depends on; the same key reuses a plan.
        measured_on: the data behind all rates, if the plan was only checked on its own data.
        undecided_count: number of undecided searches in a row, including this one.
        training_note: why the training code could not be used; empty if it was, or there was none.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.input/3"
    REMOVED: ClassVar[frozenset[str]] = frozenset({"copy_trial", "parameters", "statistics"})
    RENAMED: ClassVar[Mapping[str, str]] = {"planned_runs": "expected_runs"}

    chosen: str
    reason: str
    service_address: str | None = None
    outcomes: tuple[CandidateOutcome, ...]
    batch_size: int
    rounds: int
    margin: float
    memory_budget_bytes: int
    memory_budget_configured: bool
    example_count: int | None
    trained_example_count: float | None = None
    training_digest: str = ""
    checked_example_count: int
    file_count: int
    file_bytes: int
    compression: str
    examined_state: str = ""
    tuning_time_seconds: float
    expected_runs: int | None = None
    diagnosis: Diagnosis | None = None
    advice: tuple[Advice, ...] = ()
    final: Confirmation | None = None
    key: dict[str, str] = pydantic.Field(default_factory=dict)
    reused_from: str | None = None
    measured_on: MeasuredData | None = None
    undecided_count: int = 0
    training_note: str = ""

    def outcome(self, name: str) -> CandidateOutcome:
        """Returns the outcome of a candidate by name."""
        return next(outcome for outcome in self.outcomes if outcome.name == name)

    @property
    def resident_bytes(self) -> int:
        """Memory that the chosen input holds; 0 if it was not measured."""
        return int(self.outcome(self.chosen).resident_bytes or 0)

    @property
    def is_conclusive(self) -> bool:
        """Whether the search found what is faster; False also if it was not worth its time."""
        if self.chosen != DEFAULT or (self.diagnosis and self.diagnosis.is_fed):
            return True
        rounds = self.final.rounds if self.final else self.rounds
        return rounds >= measure.MIN_ROUNDS

    @property
    def needs_another_search(self) -> bool:
        """Whether the next run searches again because this search was undecided."""
        return 0 < self.undecided_count < _MOST_SEARCHES

    @property
    def training_remark(self) -> str:
        """The meaning of `training_note`, in a sentence; empty if there is none."""
        if not self.training_note:
            return ""
        return f"Measured without the training code's step: {self.training_note.rstrip('.')}."

    @property
    def remark(self) -> str:
        """Sentences on missing code, comparison, memory or time; empty if nothing was missing."""
        is_fed = self.diagnosis is not None and self.diagnosis.is_fed
        others = [outcome for outcome in self.outcomes if outcome.name != DEFAULT]
        was_compared = is_fed or any(outcome.examples_per_second for outcome in others)
        lacked_memory = any(outcome.needed_bytes is not None for outcome in others)
        lacked = lacked_memory or not was_compared or self.undecided_count
        stays = self.chosen == DEFAULT and lacked
        sentences = (self.reason if stays else "", self.training_remark)
        return " ".join(filter(None, sentences))

    @property
    def chosen_on_train_step(self) -> bool:
        """Whether the choice was compared with the default on the user's train step."""
        final = self.final
        return bool(final and final.on_train_step and final.candidate == self.chosen)

    @property
    def saving_seconds(self) -> float | None:
        """Seconds that the choice saves per training, by the ratio's lower end; None if unknown."""
        final, count = self.final, self.trained_example_count
        if not (final and count and self.chosen_on_train_step):
            return None
        return (final.ratio.low - 1.0) * count / final.tuned_examples_per_second.value

    def figures(self) -> dict[str, float | None]:
        """Returns the figures by their keys in `tfx_perf.core.metrics.CATALOGUE`."""
        default, chosen = self.outcome(DEFAULT), self.outcome(self.chosen)
        measured = [outcome for outcome in self.outcomes if outcome.examples_per_second]
        diagnosis = self.diagnosis
        final = self.final if self.chosen_on_train_step else None
        return {
            "candidate_count": len([outcome for outcome in measured if outcome is not default]),
            "default_examples_per_second": _value(default.examples_per_second),
            "tuned_examples_per_second": _value(chosen.examples_per_second),
            "input_speedup_ratio": _value(chosen.ratio),
            "input_training_speedup_ratio": _value(final.ratio if final else None),
            "input_efficiency_ratio": _value(final.fed_ratio if final else None),
            "input_headroom_ratio": _value(diagnosis.headroom_ratio if diagnosis else None),
            "input_memory_bytes": chosen.resident_bytes,
            "input_preparation_seconds": chosen.preparation_seconds,
            "tuning_time_seconds": self.tuning_time_seconds,
        }


def _value(interval: statistics.Interval | None) -> float | None:
    return interval.value if interval else None
