"""The search among the candidates: examine, measure, refine, compare."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_perf import console
from tfx_perf.config import InputSettings
from tfx_perf.hardware import host
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import parameters as parameters_lib
from tfx_perf.input import record as record_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input import train_step as train_step_lib
from tfx_perf.input.diagnosis import diagnosis as diagnosis_lib
from tfx_perf.input.search import choice, in_training
from tfx_perf.input.search import examination as examination_lib
from tfx_perf.input.search import final as final_lib
from tfx_perf.input.search import gain as gain_lib
from tfx_perf.input.search import time_budget as time_budget_lib
from tfx_perf.input.timing import measure

# When the phases end, as shares of the time budget.
BEGUN = 0.32
COMPARED = 0.86
_REFERENCE, _PREPARED, _MEASURED, _REFINED = 0.05, 0.5, 0.6, 0.68
_ENOUGH_RATIO = 0.97  # of a free input's speed, from which on there is nothing left to gain
_PATIENCE = 0.7  # share of the time left for preparations that one candidate may take
_LATEST = 0.65  # share of the budget up to which one may be prepared if there is no other
_USER_SHARE = 0.05  # of the input's time, from which on what the user's code adds counts
_PROOF_CONTENDERS = 4  # in the last comparison, which may have slower ones than those before
_FEWEST_ROUNDS = 2  # of the last comparison that may be proof


class Search:
    """One search; after it, what is known of every candidate.

    Attributes:
        outcomes: by name, the default first.
        rounds: the most samples that any comparison took.
        parameters: what candidates are made with.
        memory_budget_bytes: what a candidate may hold.
        reference: the default's first batches, unshuffled.
    """

    def __init__(
        self,
        source: source_lib.RecordSource,
        *,
        settings: InputSettings,
        train: train_step_lib.TrainStep | None,
        budget: time_budget_lib.TimeBudget,
    ) -> None:
        """Reads the default.

        Args:
            source: endless and shuffled.
            settings: budgets and margin.
            train: the user's train step; None to measure the pipelines alone.
            budget: for everything; the search leaves some of it.

        Raises:
            UserError: the default cannot be read, or there are no examples.
        """
        self._source = source
        self._settings = settings
        self._budget = budget
        self.memory_budget_bytes = (
            settings.memory_budget_bytes or host.available_memory_bytes() // 2
        )
        self.parameters = parameters_lib.Parameters(service_address=settings.service_address)
        self._train = train
        self._examination = examination_lib.Examination(
            source,
            memory_budget_bytes=self.memory_budget_bytes,
            reference_seconds=_REFERENCE * budget.seconds,
            allow_weaker_shuffle=settings.allow_weaker_shuffle,
        )
        self._in_training = in_training.InTraining(
            source, train=train, memory_budget_bytes=self.memory_budget_bytes
        )
        self.reference = self._examination.reference
        self.outcomes = {record_lib.DEFAULT: self._examination.default.outcome}
        self._prepared: dict[str, tuple[candidate_lib.Candidate, tf.data.Dataset]] = {}
        self._sample_seconds = 0.0  # what a sample has taken last
        self._turn_seconds = 0.0  # what one took in the diagnosis
        self.rounds = 0

    @staticmethod
    def least_seconds(
        diagnosis: diagnosis_lib.Diagnosis, *, example_count: int | None
    ) -> float:
        """Returns how long a search takes that ends with its first candidate.

        Args:
            diagnosis: of the default; a candidate is compared in training in the same turns.
            example_count: examples in the split, which that candidate reads; None if not known.
        """
        reading_seconds = (example_count or 0) / diagnosis.pipeline_examples_per_second.value
        return (1 + measure.MIN_ROUNDS) * diagnosis.round_time_seconds + reading_seconds

    def run(
        self,
        candidates: Sequence[candidate_lib.Candidate],
        *,
        diagnosis: diagnosis_lib.Diagnosis,
        gain: gain_lib.Gain,
    ) -> choice.Choice:
        """Searches among the candidates.

        The first is tried in training at once. If it is faster there, and leaves less to gain
        than it takes to look at another one, it is chosen. If there is no time for another one,
        it or the default is.

        Args:
            candidates: what to compare with the default; what wins most often comes first.
            diagnosis: of the default; says what is fast enough, and whether the training code
                adds stages that take time.
            gain: what a faster input brings.
        """
        self._turn_seconds = diagnosis.round_time_seconds / (3 if self._train else 1)
        first, *others = candidates
        found = self._tried_at_once(first, gain)
        if found:
            for candidate in others:
                self.outcomes[candidate.name] = examination_lib.dropped(
                    candidate, choice.NOT_WORTH_IT
                ).outcome
            return found
        for candidate in others:
            self._examine(candidate, deadline_seconds=self._preparation_deadline())
        examined = [self.outcomes[candidate.name] for candidate in candidates]
        if not self._prepared:
            reason = choice.none_measured(examined, memory_budget_bytes=self.memory_budget_bytes)
            return choice.Choice(record_lib.DEFAULT, reason)
        if not self._has_time(1 + len(self._prepared)):
            return self._without_time()
        self._measure([*self._prepared], share=_MEASURED, decided=choice.is_decided)
        examined = [self.outcomes[candidate.name] for candidate in candidates]
        found = self._compared(diagnosis)
        without = choice.without_memory(examined, memory_budget_bytes=self.memory_budget_bytes)
        if found.name == record_lib.DEFAULT and without:
            return dataclasses.replace(found, reason=f"{found.reason} {without}")
        return found

    def _tried_at_once(
        self, candidate: candidate_lib.Candidate, gain: gain_lib.Gain
    ) -> choice.Choice | None:
        """Returns the candidate as the choice, None if others have to be looked at."""
        began = time.monotonic()
        name = candidate.name
        is_prepared = self._examine(candidate, deadline_seconds=self._preparation_deadline())
        if not (is_prepared and self._in_training.has_step):
            return None
        if not self._has_time(2):
            return self._without_time()
        self._measure([name], share=_MEASURED, decided=choice.is_beyond_doubt, min_rounds=1)
        if not self._has_time(0):
            return self._without_time()
        final = self._compare(name, rounds=measure.MIN_ROUNDS)
        found = choice.verdict(final, margin=self._settings.margin)
        took_seconds = time.monotonic() - began
        if self._budget.left(COMPARED) < took_seconds:  # which another one would take, too
            return found
        is_enough = (
            final.fed_ratio is not None and final.fed_ratio.value >= _ENOUGH_RATIO
        ) or gain.left_seconds(final) < took_seconds
        return found if is_enough and found.name == name else None

    def _compare(self, name: str, **limits: Any) -> final_lib.FinalComparison:
        """Compares a prepared candidate with the default, in training if that is known."""
        console.set_status(f"comparing {name} with the default in training")
        candidate, tuned = self._prepared[name]
        return self._in_training.compare(
            candidate,
            default=self._examination.default.dataset,
            tuned=tuned,
            deadline_seconds=self._budget.until(COMPARED),
            **limits,
        )

    def _compared(self, diagnosis: diagnosis_lib.Diagnosis) -> choice.Choice:
        """Returns the choice among the candidates that have been measured."""
        best = choice.best_of(self.outcomes.values(), margin=self._settings.margin)
        if best is None:
            return choice.Choice(record_lib.DEFAULT, choice.none_is_faster(self._settings.margin))
        name = best.name
        if diagnosis.user_share > _USER_SHARE:
            name = self._settle_autotune(name)
        if not self._has_time(0):
            return self._without_time()
        return choice.verdict(self._compare(name), margin=self._settings.margin)

    def _has_time(self, turns: int) -> bool:
        """Returns whether there is time for turns, and for the last comparison after them."""
        proof = _FEWEST_ROUNDS * (3 if self._train else 2)
        return self._budget.left(COMPARED) >= self._turn_seconds * (turns + proof)

    def _without_time(self) -> choice.Choice:
        self.rounds = 0  # of a comparison; those before it decide nothing
        return choice.Choice(record_lib.DEFAULT, choice.too_few_rounds(0))

    def release(self) -> None:
        """Lets go of the candidates and of what they hold in memory."""
        self._prepared.clear()

    def _preparation_deadline(self) -> float:
        """Returns when the next candidate must be prepared, on `time.monotonic`'s clock."""
        if not self._prepared:  # on a slow machine better one than a share of the time for each
            return self._budget.until(_LATEST)
        return time.monotonic() + _PATIENCE * self._budget.left(_PREPARED)

    def _examine(
        self, candidate: candidate_lib.Candidate, *, deadline_seconds: float
    ) -> bool:
        console.set_status(f"examining {candidate.name}")
        found = self._examination.examine(candidate, deadline_seconds=deadline_seconds)
        self.outcomes[candidate.name] = found.outcome
        if found.dataset is not None:
            self._prepared[candidate.name] = candidate, found.dataset
        return found.dataset is not None

    def _measure(
        self,
        names: Sequence[str],
        *,
        share: float,
        decided: measure.Decided = measure.never,
        min_rounds: int = measure.MIN_ROUNDS,
    ) -> measure.Samples:
        """Measures the default and the named candidates, and fills in their outcomes."""
        console.set_status(f"measuring {', '.join([record_lib.DEFAULT, *names])} in turns")
        timed_datasets = {
            record_lib.DEFAULT: measure.TimedDataset(self._examination.default.dataset),
            **{name: measure.TimedDataset(self._prepared[name][1]) for name in names},
        }
        began = time.monotonic()
        samples = measure.measure(
            timed_datasets,
            batch_size=self._source.options.batch_size,
            deadline_seconds=self._budget.until(share),
            decided=decided,
            min_rounds=min_rounds,
        )
        rounds = len(samples[record_lib.DEFAULT])
        self._sample_seconds = (time.monotonic() - began) / (rounds * len(timed_datasets))
        self.rounds = max(self.rounds, rounds)
        for name in timed_datasets:
            self.outcomes[name] = choice.with_figures(self.outcomes[name], samples)
        return samples

    def _refining_deadline(self) -> float:
        """Returns when to refine no more, on `time.monotonic`'s clock: the proof needs its time."""
        proof_seconds = measure.MIN_ROUNDS * _PROOF_CONTENDERS * self._sample_seconds
        return min(self._budget.until(_REFINED), self._budget.until(COMPARED) - proof_seconds)

    def _settle_autotune(self, name: str) -> str:
        """Returns the candidate, with autotune on if that makes the user's stages faster."""
        if time.monotonic() + 2 * self._turn_seconds > self._refining_deadline():
            return name
        candidate, dataset = self._prepared[name]
        variant = candidates_lib.Autotune(candidate)
        gains = self._in_training.gains_by_autotune(
            candidate,
            variant,
            margin=self._settings.margin,
            deadline_seconds=self._refining_deadline(),
        )
        if not gains:
            return name
        self._prepared[variant.name] = variant, dataset
        self.outcomes[variant.name] = self.outcomes[name].model_copy(
            update={"name": variant.name, "description": variant.description}
        )
        return variant.name
