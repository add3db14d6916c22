"""Whether a candidate may be measured at all: equivalent to the default, within the budgets."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import record as record_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.proof import equivalence as equivalence_lib
from tfx_perf.input.proof import shuffle_quality as quality_lib
from tfx_perf.input.proof import unreadable
from tfx_perf.input.timing import memory_meter

Check = Callable[[limits_lib.Limits], quality_lib.ShuffleQuality | None]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A candidate's outcome so far, and its endless dataset unless it was dropped."""

    outcome: record_lib.CandidateOutcome
    dataset: tf.data.Dataset | None = None


class Examination:
    """Prepares candidates and holds them against the default.

    Attributes:
        default: the default, prepared.
        reference: its first batches in the unshuffled order.
    """

    def __init__(
        self,
        source: source_lib.RecordSource,
        *,
        memory_budget_bytes: float,
        reference_seconds: float,
        allow_weaker_shuffle: bool = False,
    ) -> None:
        """Reads the default.

        Args:
            source: endless and shuffled.
            memory_budget_bytes: what a candidate may hold.
            reference_seconds: time to read the default's examples. Reading them shuffled, and
                those of each candidate, takes about as long at the most.
            allow_weaker_shuffle: also let candidates pass that shuffle worse than the default.

        Raises:
            UserError: the default itself cannot be read, or there are no examples.
        """
        self._source = source
        self._limits = limits_lib.Limits(memory_bytes=memory_budget_bytes)
        self._allow_weaker_shuffle = allow_weaker_shuffle
        self._damage = unreadable.DamageSearch(source)
        try:
            self._equivalence = equivalence_lib.Equivalence(source, seconds=reference_seconds)
            self.reference = self._equivalence.reference
            if self.reference.digest.count:
                self.default = self._prepare(
                    candidates_lib.Default(),
                    limits=limits_lib.Limits(memory_bytes=math.inf),
                    check=self._default_shuffle,
                )
        except (tf.errors.OpError, ValueError, NotImplementedError) as error:
            raise self._damage.user_error(error) from error
        if not self.reference.digest.count:
            raise errors.UserError(
                "Expected at least one example. Received: file_patterns="
                f"{list(source.file_patterns)}. Check the split and the component before."
            )

    def examine(
        self,
        candidate: candidate_lib.Candidate,
        *,
        deadline_seconds: float = math.inf,
    ) -> Prepared:
        """Prepares and checks a candidate; never raises.

        Args:
            candidate: what to examine.
            deadline_seconds: value of `time.monotonic()` after which it is given up.
        """
        self._limits = dataclasses.replace(self._limits, deadline_seconds=deadline_seconds)
        try:
            self._limits.check(0)
            prepared = self._prepare_and_compare(candidate)
        except candidate_lib.OverMemoryBudget as refusal:
            return dropped(candidate, str(refusal), needed_bytes=refusal.needed_bytes)
        except candidate_lib.NotApplicable as refusal:
            return dropped(candidate, str(refusal))
        except Exception as error:  # one broken candidate must not cost the search
            reason = self._damage.reason(error, seconds=self._limits.remaining_seconds)
            return dropped(candidate, reason)
        shuffle = prepared.outcome.shuffle
        shortfall = self._equivalence.shortfall(shuffle, self.default.outcome.shuffle)
        if shortfall and not self._allow_weaker_shuffle:
            return dropped(candidate, shortfall, shuffle=shuffle)
        return prepared

    def _prepare_and_compare(self, candidate: candidate_lib.Candidate) -> Prepared:
        if self.reference.complete:
            return self._prepare(
                candidate,
                limits=self._limits,
                check=lambda limits: self._shuffle_quality(candidate, limits),
            )
        # With a fresh one, so that the candidate itself keeps no table of the first files.
        shuffle = self._shuffle_quality(candidate.fresh(), self._limits)

        def check(limits: limits_lib.Limits) -> quality_lib.ShuffleQuality | None:
            self._equivalence.check_start(
                functools.partial(candidate.build, limits=limits),
                seconds=limits.remaining_seconds,
            )
            return shuffle

        return self._prepare(candidate, limits=self._limits, check=check)

    def _prepare(
        self, candidate: candidate_lib.Candidate, *, limits: limits_lib.Limits, check: Check
    ) -> Prepared:
        """Builds the candidate, reads from it, and measures the time and memory it takes."""
        with memory_meter.MemoryMeter() as meter:
            limits = dataclasses.replace(limits, meter=meter)
            started = time.perf_counter()
            dataset = candidate.build(self._source, limits=limits)
            _check_spec(dataset, self._source.element_spec)
            iterator = iter(dataset)
            next(iterator, None)
            seconds = time.perf_counter() - started
            growth_bytes = [meter.settled_growth_bytes()]  # with the buffers of what runs
            del iterator
            shuffle = check(limits)
            growth_bytes.append(meter.settled_growth_bytes())
        limits.check(meter.peak_growth_bytes)
        outcome = record_lib.CandidateOutcome(
            name=candidate.name,
            description=candidate.description,
            status="measured",
            preparation_seconds=seconds,
            resident_bytes=max(candidate.held_bytes, *growth_bytes),
            peak_memory_bytes=meter.peak_growth_bytes,
            shuffle=shuffle,
        )
        return Prepared(outcome, dataset)

    def _shuffle_quality(
        self, candidate: candidate_lib.Candidate, limits: limits_lib.Limits
    ) -> quality_lib.ShuffleQuality | None:
        return self._equivalence.shuffle_quality(
            functools.partial(candidate.build, limits=limits), seconds=limits.remaining_seconds
        )

    def _default_shuffle(
        self, limits: limits_lib.Limits
    ) -> quality_lib.ShuffleQuality | None:
        try:
            return self._shuffle_quality(candidates_lib.Default(), limits)
        except candidate_lib.NotApplicable:  # its own shuffled epochs hold other examples
            return None


def _check_spec(dataset: tf.data.Dataset, expected: Any) -> None:
    if dataset.element_spec != expected:
        raise candidate_lib.NotApplicable(
            f"its element spec is {dataset.element_spec}, the default's is {expected}"
        )


def dropped(
    candidate: candidate_lib.Candidate,
    reason: str,
    *,
    shuffle: quality_lib.ShuffleQuality | None = None,
    needed_bytes: float | None = None,
) -> Prepared:
    """Returns what is known of a candidate that is not measured.

    Args:
        candidate: that is left out.
        reason: why.
        shuffle: how well it shuffles, if that was measured.
        needed_bytes: what it would need, if it was memory.
    """
    return Prepared(
        record_lib.CandidateOutcome(
            name=candidate.name,
            description=candidate.description,
            status="dropped",
            reason=reason,
            needed_bytes=needed_bytes,
            shuffle=shuffle,
        )
    )
