"""What InputTuner found out."""

from typing import ClassVar, Literal

import pydantic

from tfx_perf.core import records, statistics
from tfx_perf.core.advice import Advice
from tfx_perf.input import measure
from tfx_perf.input.candidates.candidate import DEFAULT
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.shuffle import ShuffleQuality

FILE_NAME = "plan.json"

# Of searches in a row whose time ended too early: each may cost half of what a faster input saves.
_MOST_SEARCHES = 2


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
        peak_memory_bytes: the most that the process grew while it was prepared and checked.
        needed_bytes: what it would need at least, if it was dropped because it does not fit the
            memory budget; else None.
        shuffle: how well it shuffles; None if that could not be measured.
    """

    GONE: ClassVar[frozenset[str]] = frozenset({"cold_examples_per_second"})

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


class FinalComparison(records.Record):
    """How the best candidate did against the default in the end.

    Candidates are compared before with rounds that stop when decided, and the best of
    several is picked: both flatter it. These samples are new, and their number does
    not depend on them.

    Attributes:
        candidate: what was compared with the default.
        on_train_step: whether the user's own train step consumed the batches; otherwise
            they were only taken.
        default_examples_per_second: with TFXIO's default.
        tuned_examples_per_second: with the candidate.
        ratio: tuned to default, of paired samples.
        fed_ratio: tuned to one batch repeated from memory, of paired samples: 1 means that no
            faster input could help. None without a train step.
        rounds: number of samples of each.
    """

    candidate: str
    on_train_step: bool
    default_examples_per_second: statistics.Interval
    tuned_examples_per_second: statistics.Interval
    ratio: statistics.Interval
    fed_ratio: statistics.Interval | None
    rounds: int


class MeasuredData(records.Record):
    """The data that a plan was measured on, where it is used again on others."""

    file_count: int
    file_bytes: int
    example_count: int | None


class TuningRecord(records.Record):
    """The choice, and all that led to it.

    Attributes:
        chosen: name of the candidate to use.
        reason: why, in a sentence.
        service_address: dispatcher of the tf.data service that may be used; None for none.
        outcomes: every candidate, the default first.
        batch_size: examples in a batch while measuring.
        rounds: how often each candidate was measured, in turns.
        margin: how much faster than the default a candidate had to be.
        memory_budget_bytes: what a candidate was allowed to hold.
        memory_budget_configured: whether the user set it; otherwise whoever applies the plan
            takes half of the memory that is free there.
        example_count: examples in the split; None if they were not counted.
        trained_example_count: examples that one training reads; None if not known.
        training_digest: of the training code and its arguments; empty if there was none.
        checked_example_count: how many examples the contents were compared on; 0 where the default
            is used again, which needs no comparison.
        file_count: record files.
        file_bytes: their size on disk.
        compression: `GZIP` or the empty string.
        examined_state: `files_digest` of the files that the choice was examined on; empty where
            there was nothing to examine, and in plans of versions that did not know it.
        tuning_time_seconds: wall time of the search; of a plan that is used again, what finding
            out took that it holds.
        planned_runs: trainings that the search was for; None in plans of versions that did not say.
        diagnosis: what holds training up, with the default; None if the search failed.
        advice: warnings, each backed by a measurement.
        final: the best candidate against the default, on fresh samples; None if there was
            nothing to compare.
        key: what the choice depends on, name to fingerprint; a plan whose key is the same may
            be used again.
        reused_from: the plan that was used again instead of measuring; None if measured.
        measured_on: the data that it was measured on, if those are not the ones that it is for: it
            was only checked on these, and all rates are of those. None if they are the same.
        undecided_count: how many searches in a row, this one the last, ended before they could tell
            what is faster, so that what was used stays; 0 if this one could.
        training_note: why the training code could not be used; empty if it was, or if there
            was none.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.input/3"
    GONE: ClassVar[frozenset[str]] = frozenset({"copy_trial", "parameters", "statistics"})

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
    planned_runs: int | None = None
    diagnosis: Diagnosis | None = None
    advice: tuple[Advice, ...] = ()
    final: FinalComparison | None = None
    key: dict[str, str] = pydantic.Field(default_factory=dict)
    reused_from: str | None = None
    measured_on: MeasuredData | None = None
    undecided_count: int = 0
    training_note: str = ""

    def outcome(self, name: str) -> CandidateOutcome:
        """Returns the outcome of a candidate by name."""
        return next(outcome for outcome in self.outcomes if outcome.name == name)

    @property
    def came_to_an_end(self) -> bool:
        """Whether the search has told what is faster; some are not worth their time."""
        if self.diagnosis and self.diagnosis.is_fed:
            return True
        rounds = self.final.rounds if self.final else self.rounds
        return rounds >= measure.MIN_ROUNDS

    @property
    def is_searched_again(self) -> bool:
        """Whether the next run searches again because this search could not tell."""
        return 0 < self.undecided_count < _MOST_SEARCHES

    @property
    def training_remark(self) -> str:
        """What `training_note` means, in a sentence; empty if there is none."""
        if not self.training_note:
            return ""
        return f"Measured without the training code's step: {self.training_note.rstrip('.')}."

    @property
    def remark(self) -> str:
        """What kept the search from what it is for, in sentences; empty if nothing did.

        That is: no training code to measure with, nothing that the default was compared with, or
        a default that stays while there was no memory for others, or too little time.
        """
        is_fed = self.diagnosis is not None and self.diagnosis.is_fed
        others = [outcome for outcome in self.outcomes if outcome.name != DEFAULT]
        was_compared = is_fed or any(outcome.examples_per_second for outcome in others)
        lacked_memory = any(outcome.needed_bytes is not None for outcome in others)
        lacked = lacked_memory or not was_compared or self.undecided_count
        stays = self.chosen == DEFAULT and lacked
        said = (self.reason if stays else "", self.training_remark)
        return " ".join(filter(None, said))

    @property
    def chosen_on_train_step(self) -> bool:
        """Whether what is chosen was compared with the default on the user's train step."""
        final = self.final
        return bool(final and final.on_train_step and final.candidate == self.chosen)

    @property
    def saving_seconds(self) -> float | None:
        """About what a training saves with what was chosen; None if nobody knows."""
        final, count = self.final, self.trained_example_count
        if not (final and count and self.chosen_on_train_step):
            return None
        rates = final.default_examples_per_second, final.tuned_examples_per_second
        default_seconds, tuned_seconds = (count / rate.value for rate in rates)
        return default_seconds - tuned_seconds

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
            "input_fed_ratio": _value(final.fed_ratio if final else None),
            "input_headroom_ratio": _value(diagnosis.headroom_ratio if diagnosis else None),
            "input_memory_bytes": chosen.resident_bytes,
            "input_preparation_seconds": chosen.preparation_seconds,
            "tuning_time_seconds": self.tuning_time_seconds,
        }


def _value(interval: statistics.Interval | None) -> float | None:
    return interval.value if interval else None
