"""The search among the candidates: examines, measures in turns, compares and decides."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.config import InputSettings
from tfx_perf.core import console, errors
from tfx_perf.input import apply, candidate_check, choice, diagnosis, measure
from tfx_perf.input.budget import Gain, TimeBudget
from tfx_perf.input.candidates import Autotune
from tfx_perf.input.candidates.candidate import DEFAULT, Candidate
from tfx_perf.input.candidates.source import Parse, RecordSource
from tfx_perf.input.choice import Choice
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.record import CandidateOutcome

# Each phase ends after this share of the time that was left when it began:
_DIAGNOSED, _PREPARED, _MEASURED = 0.35, 0.6, 0.4
# Shares of the possible gain that a search may cost, and that figures for the report may.
_SEARCH_SHARE, _FIGURE_SHARE = 0.5, 0.02
_AMPLE_RATIO = 1.5  # every search may take this many times as long as the shortest one
_ENOUGH_RATIO = 0.97  # share of one repeated batch's speed above which nothing is left to gain
_USER_SHARE = 0.05  # share of the input's time above which the user's own stages matter
_FEWEST_ROUNDS = 2  # fewest rounds that can settle the last comparison
# Reading and checking a candidate takes this many times as long as the default.
_EXAMINED_RATIO = 1.2
_MAKING_SECONDS = 0.2  # to build and trace a faster input before each training
_BRIEF_SHARE = 0.5  # share of a full turn, if only a clear difference counts


class Search:
    """One search; `outcomes` has each candidate's outcome by name, the default first.

    It measures the datasets that training reads, including stages that the user's code adds.
    """

    def __init__(
        self,
        source: RecordSource,
        *,
        settings: InputSettings,
        train: measure.TrainStep | None,
        budget: TimeBudget,
        example_count: int | None,
        expected_runs: int,
        keeps_order: bool,
    ) -> None:
        """Reads the default, endless and shuffled; UserError if unreadable or without examples.

        `example_count` is used if the split is too large to be read.
        """
        self._source, self._train, self._budget = source, train, budget
        self._margin = settings.margin
        self._keeps_order = keeps_order
        began = time.monotonic()
        self._candidate_check = candidate_check.CandidateCheck(source, settings=settings)
        self._default_seconds = time.monotonic() - began  # to read and check the default
        self.memory_budget_bytes = self._candidate_check.memory_budget_bytes
        self.reference = self._candidate_check.reference
        is_whole = self.reference.complete
        self.example_count = self.reference.digest.count if is_whole else example_count
        self.trained_example_count = (
            train.trained_example_count(self.example_count) if train else None
        )
        trained_count = self.trained_example_count
        self._gain = Gain(
            math.inf if trained_count is None else expected_runs * trained_count,
            expected_runs=expected_runs,
            preparation_seconds=_MAKING_SECONDS,
            split_example_count=self.example_count or 0,
        )
        self.outcomes: dict[str, CandidateOutcome] = {
            DEFAULT: self._candidate_check.default.outcome
        }
        self._default = train.default if train else source.default()  # endless, as trained on
        self._contenders: dict[str, tf.data.Dataset] = {}  # likewise, for the others
        self.batch_size = train.batch_size if train else source.options.batch_size
        self.rounds = 0
        self.diagnosis: Diagnosis

    def decide(self, candidates: Sequence[Candidate]) -> Choice:
        """Tries the likeliest winners first, and stops when measuring costs more than it saves.

        Measures the training's dataset alone, the first candidate alone, and the train step.
        """
        console.set_status("diagnosing the input pipeline")
        if self._train:
            self.diagnosis, turn = diagnosis.alone(
                self._default, batch_size=self.batch_size, turn_share=_BRIEF_SHARE
            )
            decided = self._decided_by_order() or self._decided_alone(candidates, turn)
            if decided:
                return decided
            self._train.prepare()
            if self._budget.left_seconds < self.diagnosis.round_time_seconds:
                return choice.too_few_rounds()
        self.diagnosis = rates = diagnosis.diagnose(
            self._source,
            self._default,
            train=self._train,
            seconds=_DIAGNOSED * self._budget.left_seconds,
            is_worth_it=self._is_worth_it,
            details_worth=lambda rates: _FIGURE_SHARE * self._gain.possible_seconds(rates),
        )
        if rates.is_fed:
            return Choice(DEFAULT, rates.verdict, was_searched=False)
        if decided := self._decided_by_order():
            return decided
        if not self._is_worth_it(rates):
            return self._too_little(self.least_seconds(rates))
        most_seconds = _SEARCH_SHARE * self._gain.possible_seconds(rates)
        self._budget.limit(max(_AMPLE_RATIO * self.least_seconds(rates), most_seconds))
        return self._search(candidates)

    def _decided_by_order(self) -> Choice | None:
        """Returns the default if its order must be kept; every other candidate's differs."""
        reason = "The default stays: a training that must be reproducible keeps its order."
        return Choice(DEFAULT, reason, was_searched=False) if self._keeps_order else None

    def least_seconds(self, rates: Diagnosis) -> float:
        """Returns how long a search takes if it ends with its first candidate."""
        rate = rates.pipeline_examples_per_second.value
        reading_seconds = (self.example_count or 0) / rate
        return (1 + measure.MIN_ROUNDS) * rates.round_time_seconds + reading_seconds

    def _is_worth_it(self, rates: Diagnosis) -> bool:
        return self._gain.possible_seconds(rates) >= self.least_seconds(rates)

    def _too_little(self, search_seconds: float) -> Choice:
        reason = self._gain.too_little(self.diagnosis, search_seconds=search_seconds)
        return Choice(DEFAULT, reason, was_searched=False)

    @property
    def _turn_seconds(self) -> float:
        """How long a turn of the default took; with a train step, a round has three turns."""
        return self.diagnosis.round_time_seconds / (3 if self._train else 1)

    def _decided_alone(
        self, candidates: Sequence[Candidate], turn: measure.Sample
    ) -> Choice | None:
        """Returns a choice made without the train step; None if that is needed to decide.

        The first candidate is chosen if it wins beyond doubt with nothing else running, and takes
        less CPU time, so that it cannot slow training down. `turn` is the default's earlier turn.
        """
        possible_seconds = self._gain.possible_seconds(self.diagnosis)
        least_seconds = self.least_seconds(self.diagnosis)
        turns_seconds = _BRIEF_SHARE * (self._turn_seconds + 2 * measure.turn_seconds())
        shortest_seconds = turns_seconds + _EXAMINED_RATIO * self._default_seconds
        # The train step gives the report better figures, which is worth a share of the gain.
        details_cost_too_much = _FIGURE_SHARE * possible_seconds < least_seconds
        if details_cost_too_much and possible_seconds >= shortest_seconds:
            first, *others = candidates
            if self._budget.left_seconds >= shortest_seconds and self._examine(first):
                samples = self._turns(
                    [first.name],
                    max_rounds=_FEWEST_ROUNDS,
                    turn_share=_BRIEF_SHARE,
                    first={DEFAULT: turn},
                )
                final = choice.comparison(samples, first.name, on_train_step=False)
                leader = choice.verdict(final, margin=self._margin)
                if leader.name == first.name and choice.takes_less_cpu(samples, first.name):
                    self._drop(others)
                    return leader
            shortest_seconds = least_seconds
        if possible_seconds < least_seconds:
            return self._too_little(shortest_seconds)
        return None

    def _search(self, candidates: Sequence[Candidate]) -> Choice:
        """Tests the first candidate in training, then all if enough could still be gained.

        If there is no time for another candidate, the first or the default is chosen.
        """
        began = time.monotonic()
        first, *others = candidates
        proven: Choice | None = None
        if self._train and self._examine(first):
            proven = self._compare([first], max_rounds=measure.MIN_ROUNDS)
            if self._is_enough(proven, search_seconds=time.monotonic() - began):
                self._drop(others)
                return proven
        usable = [candidate for candidate in candidates if self._examine(candidate)]
        examined = [self.outcomes[candidate.name] for candidate in candidates]
        memory = choice.without_memory(examined, memory_budget_bytes=self.memory_budget_bytes)
        if not usable:
            return choice.none_measured(examined, memory=memory)
        rounds = self.rounds
        decided = self._compare(usable)
        if decided.name == DEFAULT and proven and proven.name != DEFAULT:
            self.rounds = max(rounds, self.rounds)
            return proven
        if decided.name == DEFAULT and memory:
            return dataclasses.replace(decided, reason=f"{decided.reason} {memory}")
        return decided

    def _is_enough(self, decided: Choice, *, search_seconds: float) -> bool:
        """Whether there is no time for another candidate, or trying it costs more than it saves."""
        if self._budget.left_seconds < search_seconds:
            return True
        final = decided.final
        if decided.name == DEFAULT or final is None:
            return False
        is_fed = final.fed_ratio is not None and final.fed_ratio.value >= _ENOUGH_RATIO
        return is_fed or self._gain.left_seconds(final) < search_seconds

    def _examine(self, candidate: Candidate, ready: candidate_check.Prepared | None = None) -> bool:
        """Prepares (unless `ready`) and checks a candidate once; returns whether it passed."""
        if candidate.name not in self.outcomes:
            console.set_status(f"examining {candidate.name}")
            ready = ready or self._candidate_check.examine(
                candidate, deadline_seconds=self._budget.until(_PREPARED)
            )
            if ready.dataset is not None and not self._budget.left_seconds:
                ready = candidate_check.dropped(candidate, "not measured: time ran out")
            try:
                if ready.dataset is not None:
                    dataset = self._training_dataset(candidate, ready.dataset)
                    self._contenders[candidate.name] = dataset
            except Exception as error:  # the user's code must not end the search
                ready = candidate_check.dropped(candidate, errors.in_one_line(error))
            self.outcomes[candidate.name] = ready.outcome
        return candidate.name in self._contenders

    def _drop(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            skipped = candidate_check.dropped(candidate, choice.NOT_WORTH_IT)
            self.outcomes[candidate.name] = skipped.outcome

    def _compare(
        self, candidates: Sequence[Candidate], *, max_rounds: int = measure.MAX_ROUNDS
    ) -> Choice:
        """Measures with nothing else running; the best must win again, in training if any."""
        names = [candidate.name for candidate in candidates]
        if self.diagnosis.user_share > _USER_SHARE:
            names += self._with_autotune(candidates[0])
        if not self._has_time(1 + len(names)):
            return self._out_of_time()
        self._turns(names, decided=choice.is_decided, share=_MEASURED)
        best = choice.best_of([self.outcomes[name] for name in names], margin=self._margin)
        if best is None:
            return choice.none_is_faster(self._margin)
        if not self._has_time(0):
            return self._out_of_time()
        on_train_step = self._train is not None
        samples = self._turns([best.name], on_train_step=on_train_step, max_rounds=max_rounds)
        final = choice.comparison(samples, best.name, on_train_step=on_train_step)
        return choice.verdict(final, margin=self._margin)

    def _with_autotune(self, candidate: Candidate) -> list[str]:
        """Returns the variant for stages that the user's code adds; it reuses the loaded data."""
        variant = Autotune(candidate)
        outcome = self.outcomes[candidate.name].model_copy(
            update={"name": variant.name, "description": variant.description}
        )
        prepared = candidate_check.Prepared(outcome, self._contenders[candidate.name])
        return [variant.name] if self._examine(variant, prepared) else []

    def _has_time(self, turns: int) -> bool:
        proof = _FEWEST_ROUNDS * (3 if self._train else 2)
        return self._budget.left_seconds >= self._turn_seconds * (turns + proof)

    def _out_of_time(self) -> Choice:
        self.rounds = 0  # no comparison was finished; earlier rounds decide nothing
        return choice.too_few_rounds()

    def _turns(
        self,
        names: Sequence[str],
        *,
        on_train_step: bool = False,
        decided: measure.Decided = lambda samples: False,
        max_rounds: int = measure.MAX_ROUNDS,
        share: float = 1.0,
        turn_share: float = 1.0,
        first: Mapping[str, measure.Sample] | None = None,
    ) -> measure.Samples:
        """Measures contenders and the default in turns; on the train step also a repeated batch."""
        datasets = {DEFAULT: self._default, **{name: self._contenders[name] for name in names}}
        where, consumer = "without training", measure.take_only
        if self._train and on_train_step:
            where, consumer = "in training", self._train.consume
            datasets[choice.REPEATED] = self._train.repeated_batch()
        console.set_status(f"measuring {', '.join([DEFAULT, *names])} in turns, {where}")
        samples = measure.measure(
            {name: measure.TimedDataset(each, consumer) for name, each in datasets.items()},
            batch_size=self.batch_size,
            deadline_seconds=self._budget.until(share),
            decided=decided,
            max_rounds=max_rounds,
            turn_share=turn_share,
            first=first,
        )
        if not on_train_step:
            self.rounds = max(self.rounds, len(samples[DEFAULT]))
            for name in samples:
                self.outcomes[name] = choice.with_figures(self.outcomes[name], samples)
        return samples

    def _training_dataset(self, candidate: Candidate, dataset: tf.data.Dataset) -> tf.data.Dataset:
        if self._train is None:
            return dataset
        source = self._source

        def parser_for(schema: object, options: Any) -> Parse | None:
            same = options.label_key == source.options.label_key
            return source.parse if same else None

        factory = apply.serving(  # shares the data that the candidate holds
            candidate,
            source.default_factory,
            memory_budget_bytes=self.memory_budget_bytes,
            parser_for=parser_for,
            examined_state=source.files_digest,
        )
        return self._train.dataset(factory)
