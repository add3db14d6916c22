"""Whether a candidate may be measured at all: equivalent to the default, within the budgets."""

import dataclasses
import gc
import time

import psutil
import tensorflow as tf

from tfx_perf import errors
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import fingerprint
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import record as record_lib
from tfx_perf.input import source as source_lib


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A candidate's outcome so far, and its endless dataset unless it was dropped."""

    outcome: record_lib.CandidateOutcome
    dataset: tf.data.Dataset | None = None


class Examination:
    """Prepares candidates and holds them against the default.

    Attributes:
        default: the default, prepared.
        reference: the digest of its first batches in the unshuffled order.
    """

    def __init__(
        self,
        source: source_lib.RecordSource,
        *,
        limits: limits_lib.Limits,
        reference_seconds: float,
    ) -> None:
        """Reads the default.

        Args:
            source: endless and shuffled.
            limits: for all candidates together.
            reference_seconds: time to read the default's examples.

        Raises:
            UserError: the default itself cannot be read, or there are no examples.
        """
        self._source = source
        self._limits = limits
        self._in_order = source.replace_options(
            num_epochs=1, shuffle=False, drop_final_batch=False
        )
        self._one_epoch = self._in_order.replace_options(shuffle=True)
        try:
            self.reference = fingerprint.prefix(self._in_order.default(), seconds=reference_seconds)
            if not self.reference.digest.count:
                raise errors.UserError(
                    "Expected at least one example. Received: file_patterns="
                    f"{list(source.file_patterns)}. Check the split and the component before."
                )
            self.default = self._prepare(candidates_lib.Default())
        except errors.UserError:
            raise
        except (tf.errors.OpError, ValueError, NotImplementedError) as error:
            raise errors.UserError(
                "Expected examples that TFXIO's dataset factory can read. Received: "
                f"file_patterns={list(source.file_patterns)} ({_first_line(error)})."
            ) from error

    def examine(self, candidate: candidate_lib.Candidate) -> Prepared:
        """Prepares and checks a candidate; never raises."""
        try:
            self._limits.check(0)
            prepared = self._prepare(candidate)
            self._check_contents(candidate)
        except candidate_lib.NotApplicable as refusal:
            return _dropped(candidate, str(refusal))
        except Exception as error:  # one broken candidate must not cost the search
            return _dropped(candidate, f"{type(error).__name__}: {_first_line(error)}")
        return prepared

    def _prepare(self, candidate: candidate_lib.Candidate) -> Prepared:
        before_bytes = _resident_bytes()
        started = time.perf_counter()
        dataset = candidate.build(self._source, limits=self._limits)
        if dataset.element_spec != self._source.element_spec:
            raise candidate_lib.NotApplicable(
                f"its element spec is {dataset.element_spec}, the default's is "
                f"{self._source.element_spec}"
            )
        for _ in dataset.take(1):
            pass
        seconds = time.perf_counter() - started
        resident_bytes = max(candidate.held_bytes, _resident_bytes() - before_bytes)
        if candidate.name != record_lib.DEFAULT:
            self._limits.check(resident_bytes)
        return Prepared(
            record_lib.CandidateOutcome(
                name=candidate.name,
                description=candidate.description,
                status="measured",
                preparation_seconds=seconds,
                resident_bytes=resident_bytes,
            ),
            dataset,
        )

    def _check_contents(self, candidate: candidate_lib.Candidate) -> None:
        reference = self.reference
        source = self._one_epoch if reference.complete else self._in_order
        batches = candidate.build(source, limits=self._limits)
        if not reference.complete:
            batches = batches.take(reference.batches)
        found = fingerprint.digest(batches)
        if found != reference.digest:
            raise candidate_lib.NotApplicable(
                "its examples are not those of the default: "
                f"{found.count} examples against {reference.digest.count}"
                + (", with other values" if found.count == reference.digest.count else "")
            )


def _dropped(candidate: candidate_lib.Candidate, reason: str) -> Prepared:
    return Prepared(
        record_lib.CandidateOutcome(
            name=candidate.name,
            description=candidate.description,
            status="dropped",
            reason=reason,
        )
    )


def _resident_bytes() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
