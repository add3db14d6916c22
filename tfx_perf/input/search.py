"""The search among the candidates: examine, measure, compare."""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.config import InputSettings
from tfx_perf.core import console, statistics
from tfx_perf.hardware import host
from tfx_perf.input import apply, choice, examination, measure
from tfx_perf.input.candidates import Autotune
from tfx_perf.input.candidates.candidate import DEFAULT, Candidate
from tfx_perf.input.candidates.source import Factory, Parse, RecordSource
from tfx_perf.input.choice import Choice, Gain
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.measure import TimedDataset
from tfx_perf.input.record import FinalComparison

# When the phases end, as shares of the time budget.
BEGUN = 0.32
COMPARED = 0.86
_REFERENCE, _PREPARED, _MEASURED, _SETTLED = 0.05, 0.5, 0.6, 0.68
_ENOUGH_RATIO = 0.97  # of a free input's speed, from which on there is nothing left to gain
_PATIENCE = 0.7  # share of the time left for preparations that one candidate may take
_LATEST = 0.65  # share of the budget up to which one may be prepared if there is no other
_USER_SHARE = 0.05  # of the input's time, from which on what the user's code adds counts
_FEWEST_ROUNDS = 2  # of the last comparison that may be proof
# Times what reading and checking the default took: doing so with a candidate, and preparing that
# in a training.
_EXAMINED_RATIO, _PREPARED_RATIO = 1.2, 0.6
_BRIEF = 0.5  # share of a turn, where only what is beyond doubt counts
_REPEATED = "repeated"


class TimeBudget:
    """Wall time from now on; phases end at shares of it, and leave the rest to the next."""

    def __init__(self, seconds: float, *, spent_seconds: float = 0.0) -> None:
        self.seconds, self.is_limited = max(0.0, seconds - spent_seconds), False
        self._started = time.monotonic()
        self._began = self._started - spent_seconds

    def limit(self, seconds: float, *, reached: float) -> None:
        """Limits what is left after the share that is reached to some seconds."""
        now = time.monotonic()
        if now + seconds < self.until(1.0):
            self.seconds, self.is_limited = seconds / (1 - reached), True
            self._started = now - reached * self.seconds

    @property
    def elapsed_seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._began

    def until(self, share: float) -> float:
        """Returns the value of `time.monotonic()` when this share of the budget is used up."""
        return self._started + share * self.seconds

    def left(self, share: float) -> float:
        """Returns the seconds until this share of the budget is used up, at least 0."""
        return max(0.0, self.until(share) - time.monotonic())


class Search:
    """One search; `outcomes` has what is known of every candidate by name, the default first."""

    def __init__(
        self,
        source: RecordSource,
        *,
        settings: InputSettings,
        train: measure.TrainStep | None,
        budget: TimeBudget,
        example_count: int | None,
    ) -> None:
        """Reads an endless, shuffled default; UserError if unreadable or without examples.

        `example_count` counts where the split is too large to be read.
        """
        self._source, self._train, self._budget = source, train, budget
        self._margin = settings.margin
        self.memory_budget_bytes = (
            settings.memory_budget_bytes or host.available_memory_bytes() // 2
        )
        began = time.monotonic()
        self._examination = examination.Examination(
            source,
            memory_budget_bytes=self.memory_budget_bytes,
            reference_seconds=_REFERENCE * budget.seconds,
            allow_weaker_shuffle=settings.allow_weaker_shuffle,
        )
        self._default_seconds = time.monotonic() - began  # to read and check the default
        self._default = self._examination.default.dataset
        self.reference = self._examination.reference
        is_whole = self.reference.complete
        self.example_count = self.reference.digest.count if is_whole else example_count
        self.outcomes = {DEFAULT: self._examination.default.outcome}
        self._prepared: dict[str, tuple[Candidate, tf.data.Dataset]] = {}
        self._turn_seconds = 0.0  # what a sample took in the diagnosis
        self.rounds = 0

    @property
    def preparation_seconds(self) -> float:
        """What a training takes to prepare a candidate, about."""
        return _PREPARED_RATIO * self._default_seconds

    @functools.cached_property
    def trained_dataset(self) -> tf.data.Dataset:
        """What training reads with the default, without end; to make it runs the user's code."""
        if self._train is None:
            return self._source.default()
        return self._train.dataset(self._source.default_factory)

    def least_seconds(self, diagnosis: Diagnosis) -> float:
        """Returns how long `run` takes if it ends with its first candidate."""
        rate = diagnosis.pipeline_examples_per_second.value
        reading_seconds = (self.example_count or 0) / rate
        return (1 + measure.MIN_ROUNDS) * diagnosis.round_time_seconds + reading_seconds

    def brief_seconds(self, alone: Diagnosis) -> float:
        """Returns how long `brief` takes."""
        turns_seconds = _BRIEF * self._turn_of(alone) + measure.turn_seconds(_BRIEF)
        return _FEWEST_ROUNDS * turns_seconds + _EXAMINED_RATIO * self._default_seconds

    def brief(self, candidates: Sequence[Candidate], *, alone: Diagnosis) -> Choice | None:
        """Returns the first candidate if it wins beyond doubt with nothing else running.

        It must also take less CPU time, so that it cannot slow a training down. None if it does
        not win so clearly: then only the training step tells. None likewise without time for it.
        """
        first, *others = candidates
        self._turn_seconds = self._turn_of(alone)
        if self._budget.left(COMPARED) < self.brief_seconds(alone) or not self._examine(first):
            return None
        final, samples = self._comparison(
            first.name, on_train_step=False, rounds=_FEWEST_ROUNDS, turn_share=_BRIEF
        )
        for name in samples:
            self.outcomes[name] = choice.with_figures(self.outcomes[name], samples)
        found = choice.verdict(final, margin=self._margin)  # of so few rounds, beyond doubt
        if found.name != first.name or not choice.takes_less_cpu(samples, first.name):
            return None
        self.rounds = final.rounds
        self._drop(others)
        return found

    def run(
        self, candidates: Sequence[Candidate], *, diagnosis: Diagnosis, gain: Gain
    ) -> Choice:
        """Searches among the candidates, of which those that win most often come first.

        The first is tried in training at once, and chosen if it is faster and leaves less to gain
        than looking at another takes. Without time for another one, it or the default is.
        """
        self._turn_seconds = self._turn_of(diagnosis)
        first, *others = candidates
        found = self._tried_at_once(first, gain)
        if found:
            self._drop(others)
            return found
        for candidate in others:
            self._examine(candidate)
        examined = [self.outcomes[candidate.name] for candidate in candidates]
        budget_bytes = self.memory_budget_bytes
        if not self._prepared:
            return choice.none_measured(examined, memory_budget_bytes=budget_bytes)
        if not self._has_time(1 + len(self._prepared)):
            return self._without_time()
        self._measure([*self._prepared], decided=choice.is_decided)
        found = self._compared(user_share=diagnosis.user_share)
        without = choice.without_memory(examined, memory_budget_bytes=budget_bytes)
        if found.name == DEFAULT and without:
            return dataclasses.replace(found, reason=f"{found.reason} {without}")
        return found

    def release(self) -> None:
        """Lets go of the candidates and of what they hold in memory."""
        self._prepared.clear()

    def _drop(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            skipped = examination.dropped(candidate, choice.NOT_WORTH_IT)
            self.outcomes[candidate.name] = skipped.outcome

    def _tried_at_once(self, candidate: Candidate, gain: Gain) -> Choice | None:
        """Returns the candidate as the choice, None if others have to be looked at."""
        began = time.monotonic()
        name = candidate.name
        if not (self._examine(candidate) and self._train):
            return None
        if not self._has_time(2):
            return self._without_time()
        self._measure([name], decided=choice.is_beyond_doubt, min_rounds=1)
        if not self._has_time(0):
            return self._without_time()
        final, _ = self._comparison(name, rounds=measure.MIN_ROUNDS)
        found = choice.verdict(final, margin=self._margin)
        took_seconds = time.monotonic() - began
        if self._budget.left(COMPARED) < took_seconds:  # which another one would take, too
            return found
        is_fed = final.fed_ratio is not None and final.fed_ratio.value >= _ENOUGH_RATIO
        is_enough = is_fed or gain.left_seconds(final) < took_seconds
        return found if is_enough and found.name == name else None

    def _compared(self, *, user_share: float) -> Choice:
        best = choice.best_of(self.outcomes.values(), margin=self._margin)
        if best is None:
            return choice.none_is_faster(self._margin)
        name = best.name
        if user_share > _USER_SHARE:
            name = self._settle_autotune(name)
        if not self._has_time(0):
            return self._without_time()
        return choice.verdict(self._comparison(name)[0], margin=self._margin)

    def _turn_of(self, rates: Diagnosis) -> float:
        """Returns what a turn of the default took, of the three in a round with a train step."""
        return rates.round_time_seconds / (3 if self._train else 1)

    def _has_time(self, turns: int) -> bool:
        """Returns whether there is time for turns, and for the last comparison after them."""
        proof = _FEWEST_ROUNDS * (3 if self._train else 2)
        return self._budget.left(COMPARED) >= self._turn_seconds * (turns + proof)

    def _without_time(self) -> Choice:
        self.rounds = 0  # of a comparison; those before it decide nothing
        return choice.too_few_rounds()

    def _examine(self, candidate: Candidate) -> bool:
        """Prepares and checks a candidate; returns whether it can be measured."""
        if candidate.name in self.outcomes:  # by `brief`
            return candidate.name in self._prepared
        console.set_status(f"examining {candidate.name}")
        if not self._prepared:  # on a slow machine better one than a share of the time for each
            deadline_seconds = self._budget.until(_LATEST)
        else:
            deadline_seconds = time.monotonic() + _PATIENCE * self._budget.left(_PREPARED)
        found = self._examination.examine(candidate, deadline_seconds=deadline_seconds)
        self.outcomes[candidate.name] = found.outcome
        if found.dataset is not None:
            self._prepared[candidate.name] = candidate, found.dataset
        return found.dataset is not None

    def _measure(
        self,
        names: Sequence[str],
        *,
        decided: Callable[[measure.Samples], bool],
        min_rounds: int = measure.MIN_ROUNDS,
    ) -> None:
        console.set_status(f"measuring {', '.join([DEFAULT, *names])} in turns")
        timed_datasets = {DEFAULT: TimedDataset(self._default)}
        timed_datasets |= {name: TimedDataset(self._prepared[name][1]) for name in names}
        samples = measure.measure(
            timed_datasets,
            batch_size=self._source.options.batch_size,
            deadline_seconds=self._budget.until(_MEASURED),
            decided=decided,
            min_rounds=min_rounds,
        )
        self.rounds = max(self.rounds, len(samples[DEFAULT]))
        for name in timed_datasets:
            self.outcomes[name] = choice.with_figures(self.outcomes[name], samples)

    def _settle_autotune(self, name: str) -> str:
        """Returns the candidate, with autotune on if that makes the user's stages faster."""
        train = self._train
        proof_seconds = measure.MIN_ROUNDS * 3 * self._turn_seconds
        deadline_seconds = min(
            self._budget.until(_SETTLED), self._budget.until(COMPARED) - proof_seconds
        )
        if train is None or time.monotonic() + 2 * self._turn_seconds > deadline_seconds:
            return name
        candidate, dataset = self._prepared[name]
        variant = Autotune(candidate)
        samples = measure.measure(
            {
                item.name: TimedDataset(train.dataset(self._factory(item)))
                for item in (candidate, variant)
            },
            batch_size=train.batch_size,
            deadline_seconds=deadline_seconds,
            max_rounds=measure.MIN_ROUNDS,
        )
        with_it, without = (measure.rates(samples[each.name]) for each in (variant, candidate))
        if not statistics.ratio_interval(with_it, without).surely_above(1 + self._margin):
            return name
        self._prepared[variant.name] = variant, dataset
        self.outcomes[variant.name] = self.outcomes[name].model_copy(
            update={"name": variant.name, "description": variant.description}
        )
        return variant.name

    def _comparison(
        self,
        name: str,
        *,
        on_train_step: bool = True,
        rounds: int = measure.MAX_ROUNDS,
        turn_share: float = 1.0,
    ) -> tuple[FinalComparison, measure.Samples]:
        """Compares a prepared candidate with the default, on the train step if there is one."""
        train, (candidate, tuned) = self._train, self._prepared[name]
        on_train_step = on_train_step and train is not None
        where = "in training" if on_train_step else "with nothing else running"
        console.set_status(f"comparing {name} with the default {where}")
        if train is None:
            made = {DEFAULT: self._default, name: tuned}
        else:
            made = {DEFAULT: self.trained_dataset, name: train.dataset(self._factory(candidate))}
        if train and on_train_step:
            made[_REPEATED] = train.repeated_batch()
        consumer = train.consume if train and on_train_step else measure.take_only
        samples = measure.measure(
            {each: TimedDataset(dataset, consumer) for each, dataset in made.items()},
            batch_size=train.batch_size if train else self._source.options.batch_size,
            deadline_seconds=self._budget.until(COMPARED),
            max_rounds=rounds,
            turn_share=turn_share,
        )
        rates = {each: measure.rates(taken) for each, taken in samples.items()}
        fed = rates.get(_REPEATED)
        final = FinalComparison(
            candidate=name,
            on_train_step=on_train_step,
            default_examples_per_second=statistics.median_interval(rates[DEFAULT]),
            tuned_examples_per_second=statistics.median_interval(rates[name]),
            ratio=statistics.ratio_interval(rates[name], rates[DEFAULT]),
            fed_ratio=statistics.ratio_interval(rates[name], fed) if fed else None,
            rounds=len(rates[name]),
        )
        return final, samples

    def _factory(self, candidate: Candidate) -> Factory:
        """Returns the factory that training would use; it shares what the candidate holds."""
        source = self._source

        def parser_for(schema: object, options: Any) -> Parse | None:
            same = options.label_key == source.options.label_key
            return source.parse if same else None

        return apply.serving(
            candidate,
            source.default_factory,
            memory_budget_bytes=self.memory_budget_bytes,
            parser_for=parser_for,
            examined_state=source.files_digest,
        )
