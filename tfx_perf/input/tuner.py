"""Chooses an input pipeline by measurement."""

from collections.abc import Sequence

from tfx_perf.config import InputSettings
from tfx_perf.core import console
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import choice
from tfx_perf.input.advice import advise
from tfx_perf.input.budget import TimeBudget
from tfx_perf.input.candidates.candidate import Candidate
from tfx_perf.input.candidates.source import RecordSource
from tfx_perf.input.measure import TrainStep
from tfx_perf.input.record import DEFAULT, TuningRecord
from tfx_perf.input.search import Search


def tune(
    source: RecordSource,
    *,
    settings: InputSettings,
    train: TrainStep | None = None,
    candidates: Sequence[Candidate] | None = None,
    example_count: int | None = None,
    expected_runs: int = 1,
    spent_seconds: float = 0.0,
    keeps_order: bool = False,
) -> TuningRecord:
    """Compares the candidates (None: all) with TFXIO's default and returns the choice.

    The default stays if input does not hold up training, or if a search takes longer than it can
    save. Candidates must have the default's element spec and examples, shuffle no worse, and fit
    the memory budget. If figures on the user's train step would cost more than they are worth, the
    first candidate is chosen if it wins beyond doubt with nothing else running. Otherwise it is
    compared on the train step, and chosen if little is left to gain. If more is left, all are
    compared with nothing else running. The best must beat the default on new samples, on the train
    step if there is one: the lower end of the ratio's interval must be above 1 + margin.

    `spent_seconds` of the time budget are already used. With `keeps_order`, a default that shuffles
    stays, since all other candidates draw another order from the same seeds. `example_count` is for
    splits too large to read.
    Raises UserError if the default cannot be read, or there are no examples.
    """
    budget = TimeBudget(settings.tuning_seconds, spent_seconds=spent_seconds)
    endless = source.replace_options(num_epochs=None, shuffle=True)
    console.set_status("reading TFXIO's default")
    search = Search(
        endless,
        settings=settings,
        train=train,
        budget=budget,
        example_count=example_count,
        expected_runs=expected_runs,
        keeps_order=keeps_order and source.options.shuffle,
    )
    decided = search.decide(candidates or _all_candidates(settings.service_address))
    diagnosis = search.diagnosis
    default = search.outcomes[DEFAULT]
    if default.examples_per_second is None:  # otherwise it was measured beside the others
        rate = diagnosis.pipeline_examples_per_second
        search.outcomes[DEFAULT] = default.model_copy(update={"examples_per_second": rate})
    outcomes = choice.judged(search.outcomes, chosen=decided.name, margin=settings.margin)
    reason = decided.reason
    if decided.name == DEFAULT and decided.was_searched:
        reason = f"{reason} {diagnosis.bottleneck_sentence}".strip()
    shuffle = search.outcomes[DEFAULT].shuffle
    record = TuningRecord(
        chosen=decided.name,
        reason=reason,
        service_address=settings.service_address,
        outcomes=outcomes,
        batch_size=search.batch_size,
        rounds=search.rounds,
        margin=settings.margin,
        memory_budget_bytes=search.memory_budget_bytes,
        memory_budget_configured=settings.memory_budget_bytes is not None,
        example_count=search.example_count,
        trained_example_count=search.trained_example_count,
        checked_example_count=search.reference.digest.count,
        file_count=len(source.files),
        file_bytes=source.total_bytes,
        compression=source.compression,
        examined_state=endless.files_digest,
        diagnosis=diagnosis,
        advice=advise(
            source,
            diagnosis=diagnosis,
            example_count=search.example_count,
            mixing_ratio=shuffle.mixing_ratio if shuffle else None,
            trial_rates=[each.examples_per_second for each in outcomes if each.examples_per_second],
        ),
        final=decided.final,
        tuning_time_seconds=budget.elapsed_seconds,
        expected_runs=expected_runs,
    )
    if not decided.was_searched or record.is_conclusive:
        return record
    more_time = (
        "The search took as long as a faster input could save: a larger schedule.expected_runs "
        "allows more."
        if budget.is_limited
        else f"The search used up input.tuning_seconds ({settings.tuning_seconds:g}): raise it."
    )
    return record.model_copy(update={"reason": f"{reason} {more_time}", "undecided_count": 1})


def _all_candidates(service_address: str | None) -> list[Candidate]:
    names = [name for name in candidates_lib.CANDIDATES if name != DEFAULT]
    if service_address:
        names.append(candidates_lib.Service.name)
    return [candidates_lib.make(name, service_address=service_address) for name in names]
