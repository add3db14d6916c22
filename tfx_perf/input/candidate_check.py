"""Checks that a candidate may be measured: equivalent to the default, within the budgets."""

import copy
import dataclasses
import math
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfx_perf.config import InputSettings
from tfx_perf.core import errors
from tfx_perf.hardware import host
from tfx_perf.input.candidates import Default
from tfx_perf.input.candidates.candidate import DEFAULT, Candidate, NotApplicable, OverMemoryBudget
from tfx_perf.input.candidates.limits import Limits, MemoryMeter
from tfx_perf.input.candidates.source import Parse, RecordSource
from tfx_perf.input.equivalence import Equivalence
from tfx_perf.input.record import CandidateOutcome
from tfx_perf.input.shuffle import ShuffleQuality

_REFERENCE_SHARE = 0.05  # share of the tuning time for reading the default
_SEARCH_SECONDS = 5.0  # at most, to find a damaged file
_RECORDS_AT_ONCE = 1024
_TENSORFLOW_NOISE = re.compile(r"\{\{[^}]*\}\}\s*|\s*\[Op:.*$")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A candidate's outcome so far, and its endless dataset unless it was dropped."""

    outcome: CandidateOutcome
    dataset: tf.data.Dataset | None = None


class CandidateCheck:
    """Prepares candidates and compares them with `default`, whose first batches are `reference`."""

    def __init__(self, source: RecordSource, *, settings: InputSettings) -> None:
        """Reads an endless, shuffled default; UserError if unreadable or without examples."""
        self._source, self._settings = source, settings
        self.memory_budget_bytes = (
            settings.memory_budget_bytes or host.available_memory_bytes() // 2
        )
        self._damage = DamageSearch(source)
        try:
            seconds = _REFERENCE_SHARE * settings.tuning_seconds
            self._equivalence = Equivalence(source, seconds=seconds)
            self.reference = self._equivalence.reference
            if self.reference.digest.count:
                limits = Limits(memory_bytes=math.inf)
                self.default = self._prepare(Default(), limits)
        except (tf.errors.OpError, ValueError, NotImplementedError) as error:
            raise self._damage.user_error(error) from error
        if not self.reference.digest.count:
            raise errors.UserError(
                "Expected at least one example. Received: file_patterns="
                f"{list(source.file_patterns)}. Check the split and the upstream component."
            )

    def examine(self, candidate: Candidate, *, deadline_seconds: float = math.inf) -> Prepared:
        """Prepares and checks a candidate, until a `time.monotonic()` deadline; never raises."""
        limits = Limits(memory_bytes=self.memory_budget_bytes, deadline_seconds=deadline_seconds)
        try:
            limits.check(0)
            prepared = self._prepare(candidate, limits)
        except OverMemoryBudget as refusal:
            return dropped(candidate, str(refusal), needed_bytes=refusal.needed_bytes)
        except NotApplicable as refusal:
            return dropped(candidate, str(refusal))
        except Exception as error:  # one broken candidate must not end the search
            return dropped(candidate, self._damage.reason(error, seconds=limits.remaining_seconds))
        shuffle = prepared.outcome.shuffle
        shortfall = self._equivalence.shortfall(shuffle, self.default.outcome.shuffle)
        if shortfall and not self._settings.allow_weaker_shuffle:
            return dropped(candidate, shortfall, shuffle=shuffle)
        return prepared

    def _prepare(self, candidate: Candidate, limits: Limits) -> Prepared:
        """Builds the candidate, reads from it, and measures the time and memory it takes."""
        is_whole, shuffle = self.reference.complete, None
        if not is_whole:
            # Use a copy, so that the candidate itself keeps no table of the smallest files.
            unused = copy.deepcopy(candidate)
            shuffle = self._shuffle_quality(unused, limits)
        expected = self._source.element_spec
        with MemoryMeter() as meter:
            limits = dataclasses.replace(limits, meter=meter)
            started = time.perf_counter()
            dataset = candidate.build(self._source, limits=limits)
            if dataset.element_spec != expected:
                raise NotApplicable(
                    f"its element spec is {dataset.element_spec}, the default's is {expected}"
                )
            iterator = iter(dataset)
            next(iterator, None)
            seconds = time.perf_counter() - started
            growth_bytes = [meter.settled_growth_bytes()]  # with the running iterator's buffers
            del iterator
            if is_whole:
                shuffle = self._shuffle_quality(candidate, limits)
            elif candidate.name != DEFAULT:
                self._equivalence.check_start(candidate, limits=limits)
            growth_bytes.append(meter.settled_growth_bytes())
        limits.check(meter.peak_growth_bytes)
        outcome = CandidateOutcome(
            name=candidate.name,
            description=candidate.description,
            status="measured",
            preparation_seconds=seconds,
            resident_bytes=max(candidate.held_bytes, *growth_bytes),
            peak_memory_bytes=meter.peak_growth_bytes,
            shuffle=shuffle,
        )
        return Prepared(outcome, dataset)

    def _shuffle_quality(self, candidate: Candidate, limits: Limits) -> ShuffleQuality | None:
        try:
            return self._equivalence.shuffle_quality(candidate, limits=limits)
        except NotApplicable:
            if candidate.name == DEFAULT:  # the default's own shuffled epochs hold other examples
                return None
            raise


def dropped(
    candidate: Candidate,
    reason: str,
    *,
    shuffle: ShuffleQuality | None = None,
    needed_bytes: float | None = None,
) -> Prepared:
    """Returns the outcome of a candidate that is not measured: the reason, and any findings."""
    return Prepared(
        CandidateOutcome(
            name=candidate.name,
            description=candidate.description,
            status="dropped",
            reason=reason,
            needed_bytes=needed_bytes,
            shuffle=shuffle,
        )
    )


class Damage(NamedTuple):
    """A file that cannot be read to its end, and the error, in one line."""

    file: str
    error: str


class DamageSearch:
    """Finds the file behind a read error, for which TensorFlow only gives an offset."""

    def __init__(self, source: RecordSource) -> None:
        self._source = source
        self._found: dict[bool, Damage | None] = {}

    def reason(self, error: Exception, *, seconds: float) -> str:
        """Returns why a candidate failed, in one line; takes at most `seconds`, and at most 5."""
        from_tensorflow = isinstance(error, tf.errors.OpError)
        damage = self._find(error, seconds=seconds) if from_tensorflow else None
        if damage:
            return f"cannot read {damage.file}: {damage.error}"
        return f"{type(error).__name__}: {describe(error)}"

    def user_error(self, error: Exception) -> errors.UserError:
        """Returns the error for the user if the default itself raises `error`."""
        received = f"file_patterns={list(self._source.file_patterns)}"
        try:
            damage = self._find(error)
        except NotApplicable as mixed:
            return errors.UserError(
                "Expected record files that are all gzip or all plain. "
                f"Received: {received} ({mixed}). Write all of them the same way."
            )
        if damage:
            received, remedy = f"file={damage.file} ({damage.error})", "Write that file again."
        else:
            received = f"{received} ({describe(error)})"
            remedy = "Check the split and its schema."
        return errors.UserError(
            "Expected examples that TFXIO's dataset factory can read. "
            f"Received: {received}. {remedy}"
        )

    def _find(self, error: Exception, *, seconds: float = _SEARCH_SECONDS) -> Damage | None:
        corrupt = isinstance(error, tf.errors.DataLossError)  # otherwise the content is to blame
        if corrupt not in self._found:  # all candidates meet the same damage
            self._found[corrupt] = damaged_file(
                self._source.files,
                self._source.compression,
                seconds=min(seconds, _SEARCH_SECONDS),
                parse=None if corrupt else self._source.parse,
            )
        return self._found[corrupt]


def damaged_file(
    files: Sequence[str], compression: str, *, seconds: float, parse: Parse | None = None
) -> Damage | None:
    """Returns the first file that cannot be read, or parsed, to its end; None if the time ended."""
    deadline = time.monotonic() + seconds
    for name in files:
        records = tf.data.TFRecordDataset(name, compression).batch(_RECORDS_AT_ONCE)
        try:
            for _ in records.map(parse) if parse else records:
                if time.monotonic() > deadline:
                    return None
        except tf.errors.OpError as error:
            return Damage(name, describe(error))
    return None


def describe(error: Exception) -> str:
    """Returns an error's message in one line, without TensorFlow's names of graph nodes."""
    first_line = (str(error).strip().splitlines() or [""])[0]
    return _TENSORFLOW_NOISE.sub("", first_line).strip() or type(error).__name__
