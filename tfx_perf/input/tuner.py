"""Chooses an input pipeline by measurement."""

import dataclasses
import gc
import time
from collections.abc import Sequence

import psutil
import tensorflow as tf

from tfx_perf import config as perf_config
from tfx_perf import errors, statistics
from tfx_perf.hardware import host
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import fingerprint, measure
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import record as record_lib
from tfx_perf.input import source as source_lib

_REFERENCE_SHARE = 0.1  # of the time budget, for reading the default's examples
_PREPARATION_SHARE = 0.6  # after this no further candidate is prepared; the rest measures


def tune(
    source: source_lib.RecordSource,
    *,
    config: perf_config.InputConfig,
    candidates: Sequence[candidate_lib.Candidate] | None = None,
    example_count: int | None = None,
) -> record_lib.TuningRecord:
    """Compares the candidates with TFXIO's default and returns the choice.

    A candidate is dropped, and the reason recorded, if it raises, has another element spec,
    has other contents, or is over the budgets. Contents are compared as multisets over one
    shuffled epoch if the default can read it in a tenth of the time budget; of larger data,
    over as many leading batches of the unshuffled order as that tenth allows. The default
    stays unless the lower end of a candidate's ratio to it is above 1 + margin.

    Args:
        source: the data; its batch size is replaced by the configuration's.
        config: batch size, budgets, margin.
        candidates: what to compare with the default; None for all there are.
        example_count: examples in the split, if known; it is only recorded.

    Raises:
        UserError: the default itself cannot be read, or there are no examples.
    """
    started = time.monotonic()
    budget_bytes = config.memory_budget_bytes or host.available_memory_bytes() // 2
    if candidates is None:
        candidates = [
            kind()
            for name, kind in candidates_lib.CANDIDATES.items()
            if name != record_lib.DEFAULT
        ]
    examination = _Examination(
        source.replace_options(batch_size=config.batch_size, num_epochs=None, shuffle=True),
        limits=limits_lib.Limits(
            memory_bytes=budget_bytes,
            deadline_seconds=started + _PREPARATION_SHARE * config.time_budget_seconds,
        ),
        reference_seconds=_REFERENCE_SHARE * config.time_budget_seconds,
    )
    prepared = [examination.default, *map(examination.examine, candidates)]
    samples = measure.measure(
        {item.outcome.name: item.dataset for item in prepared if item.dataset is not None},
        batch_size=config.batch_size,
        deadline_seconds=started + config.time_budget_seconds,
    )
    outcomes = [_with_figures(item.outcome, samples) for item in prepared]
    rounds = len(samples[record_lib.DEFAULT])
    chosen, reason = _choose(outcomes, margin=config.margin, rounds=rounds)
    reference = examination.reference
    return record_lib.TuningRecord(
        chosen=chosen,
        reason=reason,
        outcomes=tuple(_judged(outcome, chosen, config.margin) for outcome in outcomes),
        batch_size=config.batch_size,
        rounds=rounds,
        margin=config.margin,
        memory_budget_bytes=budget_bytes,
        memory_budget_configured=config.memory_budget_bytes is not None,
        example_count=reference.digest.count if reference.complete else example_count,
        checked_example_count=reference.digest.count,
        file_count=len(source.files),
        file_bytes=source.total_bytes,
        compression=source.compression,
        tuning_time_seconds=time.monotonic() - started,
    )


@dataclasses.dataclass(frozen=True)
class _Prepared:
    outcome: record_lib.CandidateOutcome
    dataset: tf.data.Dataset | None = None


class _Examination:
    """Prepares candidates and holds them against the default."""

    def __init__(
        self,
        source: source_lib.RecordSource,
        *,
        limits: limits_lib.Limits,
        reference_seconds: float,
    ) -> None:
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
        except (tf.errors.OpError, ValueError, NotImplementedError) as error:
            if isinstance(error, errors.UserError):
                raise
            raise errors.UserError(
                "Expected examples that TFXIO's dataset factory can read. Received: "
                f"file_patterns={list(source.file_patterns)} ({_first_line(error)})."
            ) from error

    def examine(self, candidate: candidate_lib.Candidate) -> _Prepared:
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

    def _prepare(self, candidate: candidate_lib.Candidate) -> _Prepared:
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
        return _Prepared(
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


def _dropped(candidate: candidate_lib.Candidate, reason: str) -> _Prepared:
    return _Prepared(
        record_lib.CandidateOutcome(
            name=candidate.name,
            description=candidate.description,
            status="dropped",
            reason=reason,
        )
    )


def _with_figures(
    outcome: record_lib.CandidateOutcome, samples: dict[str, list[float]]
) -> record_lib.CandidateOutcome:
    if outcome.name not in samples:
        return outcome
    own = samples[outcome.name]
    return outcome.model_copy(
        update={
            "examples_per_second": statistics.median_interval(own),
            "ratio": statistics.ratio_interval(own, samples[record_lib.DEFAULT]),
        }
    )


def _choose(
    outcomes: Sequence[record_lib.CandidateOutcome], *, margin: float, rounds: int
) -> tuple[str, str]:
    """Returns the chosen candidate's name and the reason."""
    if rounds < measure.MIN_ROUNDS:
        return record_lib.DEFAULT, (
            f"The time budget allowed {rounds} of the {measure.MIN_ROUNDS} rounds that a "
            "comparison needs, so the default stays."
        )
    faster = [item for item in outcomes if item.ratio and item.ratio.low > 1 + margin]
    if not faster:
        return record_lib.DEFAULT, (
            f"No candidate was faster than the default by more than {margin:.0%} beyond its "
            "interval, so the default stays."
        )
    best = max(faster, key=lambda item: item.ratio.value)
    return best.name, (
        f"{best.name} is {best.ratio.value:.3g} times as fast as TFXIO's default (95 % interval "
        f"{best.ratio.low:.3g} to {best.ratio.high:.3g})."
    )


def _judged(
    outcome: record_lib.CandidateOutcome, chosen: str, margin: float
) -> record_lib.CandidateOutcome:
    """Returns the outcome with the choice, and for the others why not, filled in."""
    if outcome.name == chosen:
        return outcome.model_copy(update={"status": "chosen"})
    if outcome.status == "dropped":
        return outcome
    if outcome.name == record_lib.DEFAULT:
        reason = f"{chosen} is faster"
    elif outcome.ratio.low > 1 + margin:
        reason = f"faster than the default, but {chosen} was chosen"
    else:
        reason = "not faster than the default beyond the margin"
    return outcome.model_copy(update={"reason": reason})


def _resident_bytes() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
