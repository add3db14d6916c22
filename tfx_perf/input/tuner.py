"""Chooses an input pipeline by measurement."""

import time
from collections.abc import Sequence

from tfx_perf import config as perf_config
from tfx_perf import statistics
from tfx_perf.hardware import host
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import examination as examination_lib
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import measure
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
        source: the data; `num_epochs` and `shuffle` are replaced.
        config: budgets, margin.
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
    examination = examination_lib.Examination(
        source.replace_options(num_epochs=None, shuffle=True),
        limits=limits_lib.Limits(
            memory_bytes=budget_bytes,
            deadline_seconds=started + _PREPARATION_SHARE * config.time_budget_seconds,
        ),
        reference_seconds=_REFERENCE_SHARE * config.time_budget_seconds,
    )
    prepared = [examination.default, *map(examination.examine, candidates)]
    samples = measure.measure(
        {
            item.outcome.name: measure.Contender(item.dataset)
            for item in prepared
            if item.dataset is not None
        },
        batch_size=source.options.batch_size,
        deadline_seconds=started + config.time_budget_seconds,
        decided=_decided,
    )
    outcomes = [_with_figures(item.outcome, samples) for item in prepared]
    rounds = len(samples[record_lib.DEFAULT])
    chosen, reason = _choose(outcomes, margin=config.margin, rounds=rounds)
    reference = examination.reference
    return record_lib.TuningRecord(
        chosen=chosen,
        reason=reason,
        outcomes=tuple(_judged(outcome, chosen, config.margin) for outcome in outcomes),
        batch_size=source.options.batch_size,
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


def _decided(samples: measure.Samples) -> bool:
    """Whether one dataset's interval lies above those of all others."""
    intervals = sorted(
        (
            statistics.ratio_interval(_rates(own), _rates(samples[record_lib.DEFAULT]))
            for own in samples.values()
        ),
        key=lambda interval: interval.value,
    )
    return len(intervals) == 1 or intervals[-1].low > max(item.high for item in intervals[:-1])


def _rates(samples: Sequence[measure.Sample]) -> list[float]:
    return [sample.examples_per_second for sample in samples]


def _with_figures(
    outcome: record_lib.CandidateOutcome, samples: measure.Samples
) -> record_lib.CandidateOutcome:
    if outcome.name not in samples:
        return outcome
    own = samples[outcome.name]
    rates = _rates(own)
    return outcome.model_copy(
        update={
            "examples_per_second": statistics.median_interval(rates),
            "ratio": statistics.ratio_interval(rates, _rates(samples[record_lib.DEFAULT])),
            "cpu_seconds_per_example": statistics.median_interval(
                [sample.cpu_seconds_per_example for sample in own]
            ).value,
        }
    )


def _choose(
    outcomes: Sequence[record_lib.CandidateOutcome], *, margin: float, rounds: int
) -> tuple[str, str]:
    """Returns the chosen candidate's name and the reason.

    Of those that cannot be told from the fastest, the one that takes the least CPU time is
    chosen: it leaves the most to the training.
    """
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
    fastest = max(faster, key=lambda item: item.ratio.value)
    as_fast = [item for item in faster if item.ratio.high >= fastest.ratio.low]
    best = min(as_fast, key=lambda item: item.cpu_seconds_per_example)
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
