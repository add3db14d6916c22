"""Candidates as training would use them: behind the factory that the user's code calls."""

from typing import Any

import tensorflow as tf

from tfx_perf.input import apply
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input import train_step as train_step_lib
from tfx_perf.input.proof import file_state
from tfx_perf.input.search import choice
from tfx_perf.input.search import final as final_lib
from tfx_perf.input.timing import measure


class InTraining:
    """Measures candidates inside the user's training code, if there is one."""

    def __init__(
        self,
        source: source_lib.RecordSource,
        *,
        train: train_step_lib.TrainStep | None,
        memory_budget_bytes: int,
    ) -> None:
        """Prepares measurements.

        Args:
            source: endless and shuffled.
            train: the user's train step; None: batches are only taken.
            memory_budget_bytes: what a candidate may hold.
        """
        self._source = source
        self._train = train
        self._memory_budget_bytes = memory_budget_bytes

    @property
    def has_step(self) -> bool:
        """Whether the user's train step is known."""
        return self._train is not None

    def compare(
        self,
        candidate: candidate_lib.Candidate,
        *,
        default: tf.data.Dataset,
        tuned: tf.data.Dataset,
        deadline_seconds: float,
        rounds: int = final_lib.ROUNDS,
    ) -> final_lib.FinalComparison:
        """Compares a candidate with the default, on the train step if it is known.

        Args:
            candidate: the one that was picked.
            default: TFXIO's dataset, for where there is no train step.
            tuned: likewise the candidate's.
            deadline_seconds: value of `time.monotonic()` at which to come to an end.
            rounds: samples of each, if there is time.
        """
        train, repeated = self._train, None
        consumer = measure.take_only
        if train is not None:
            default = train.dataset(self._source.default_factory)
            tuned = train.dataset(self._factory(candidate))
            consumer = train.consume
            repeated = measure.TimedDataset(train.repeated_batch(), consumer)
        return final_lib.compare(
            candidate.name,
            default=measure.TimedDataset(default, consumer),
            tuned=measure.TimedDataset(tuned, consumer),
            repeated=repeated,
            batch_size=train.batch_size if train else self._source.options.batch_size,
            deadline_seconds=deadline_seconds,
            rounds=rounds,
        )

    def gains_by_autotune(
        self,
        candidate: candidate_lib.Candidate,
        variant: candidates_lib.Autotune,
        *,
        margin: float,
        deadline_seconds: float,
    ) -> bool:
        """Returns whether the stages that the user's code adds are faster with autotune on.

        Args:
            candidate: without autotune.
            variant: the same with it.
            margin: how much faster it must be, beyond its interval.
            deadline_seconds: value of `time.monotonic()` at which to come to an end.
        """
        if self._train is None:
            return False
        train = self._train
        samples = measure.measure(
            {
                item.name: measure.TimedDataset(train.dataset(self._factory(item)))
                for item in (candidate, variant)
            },
            batch_size=train.batch_size,
            deadline_seconds=deadline_seconds,
            max_rounds=measure.MIN_ROUNDS,
        )
        better = choice.improvement(
            samples, over=candidate.name, variants=[variant.name], margin=margin
        )
        return better is not None

    def _factory(self, candidate: candidate_lib.Candidate) -> source_lib.Factory:
        """Returns the factory that training would use; it shares what the candidate holds."""
        source = self._source

        def parser_for(schema: object, options: Any) -> source_lib.Parse | None:
            same = options.label_key == source.options.label_key
            return source.parse if same else None

        return apply.serving(
            candidate,
            source.default_factory,
            memory_budget_bytes=self._memory_budget_bytes,
            parser_for=parser_for,
            examined_state=file_state.digest(source.file_states),
        )
