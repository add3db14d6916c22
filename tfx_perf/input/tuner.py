"""Chooses an input pipeline by measurement."""

import dataclasses
import math
from collections.abc import Sequence

from tfx_perf.config import InputSettings
from tfx_perf.core import console
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import choice
from tfx_perf.input.advice import advise
from tfx_perf.input.candidates.candidate import Candidate
from tfx_perf.input.candidates.source import RecordSource
from tfx_perf.input.diagnosis import Diagnosis, alone, diagnose
from tfx_perf.input.measure import TrainStep
from tfx_perf.input.record import DEFAULT, TuningRecord
from tfx_perf.input.search import BEGUN, COMPARED, Search, TimeBudget

# Of what there is to gain: what a search may cost, and each figure that is for people alone.
_SEARCH_SHARE, _FIGURE_SHARE = 0.5, 0.05
_AMPLE = 1.5  # times what the shortest search takes, which every search may


def tune(
    source: RecordSource,
    *,
    settings: InputSettings,
    train: TrainStep | None = None,
    candidates: Sequence[Candidate] | None = None,
    example_count: int | None = None,
    planned_runs: int = 1,
    spent_seconds: float = 0.0,
) -> TuningRecord:
    """Compares the candidates (None: all) with TFXIO's default and returns the choice.

    If input does not hold training up, or a search takes longer than it can save, the default
    stays. Candidates must have the same element spec and examples, no worse shuffle, and fit the
    memory budget. Where figures on the user's train step would cost more than they are worth, the
    first is chosen if it wins beyond doubt with nothing else running. Otherwise it is compared on
    the train step, and chosen if little is left to gain; else all are compared with nothing else
    running. The best must beat the default on fresh samples, on the train step if there is one: the
    lower end of the ratio's interval must be above 1 + margin.

    `spent_seconds` of the time budget are gone. `example_count` is for splits too large to read.
    Raises UserError if the default cannot be read, or there are no examples.
    """
    budget = TimeBudget(settings.time_budget_seconds, spent_seconds=spent_seconds)
    endless = source.replace_options(num_epochs=None, shuffle=True)
    console.set_status("reading TFXIO's default")
    search = Search(
        endless, settings=settings, train=train, budget=budget, example_count=example_count
    )
    count = search.example_count
    trained_count = train.trained_example_count(count) if train else None
    gain = choice.Gain(
        math.inf if trained_count is None else planned_runs * trained_count,
        planned_runs=planned_runs,
        preparation_seconds=search.preparation_seconds,
    )
    decision = _decide(
        endless,
        candidates=candidates or _all_candidates(settings.service_address),
        search=search,
        train=train,
        gain=gain,
        budget=budget,
    )
    found, diagnosis = decision.choice, decision.diagnosis
    search.release()
    search.outcomes[DEFAULT] = search.outcomes[DEFAULT].model_copy(
        update={"examples_per_second": diagnosis.pipeline_examples_per_second}
    )
    outcomes = choice.judged(search.outcomes, chosen=found.name, margin=settings.margin)
    shuffle = search.outcomes[DEFAULT].shuffle
    record = TuningRecord(
        chosen=found.name,
        reason=found.reason,
        service_address=settings.service_address,
        outcomes=outcomes,
        batch_size=source.options.batch_size,
        rounds=search.rounds,
        margin=settings.margin,
        memory_budget_bytes=search.memory_budget_bytes,
        memory_budget_configured=settings.memory_budget_bytes is not None,
        example_count=count,
        trained_example_count=trained_count,
        checked_example_count=search.reference.digest.count,
        file_count=len(source.files),
        file_bytes=source.total_bytes,
        compression=source.compression,
        examined_state=endless.files_digest,
        diagnosis=diagnosis,
        advice=advise(
            source,
            diagnosis=diagnosis,
            example_count=count,
            mixing_ratio=shuffle.mixing_ratio if shuffle else None,
            trial_rates=[
                each.examples_per_second for each in outcomes if each.examples_per_second
            ],
        ),
        final=found.final,
        tuning_time_seconds=budget.elapsed_seconds,
        planned_runs=planned_runs,
    )
    if not decision.has_searched or record.came_to_an_end:
        return record
    more_time = (
        "The time ended with what a faster input may save: a larger schedule.planned_runs "
        "gives more."
        if budget.is_limited
        else f"The time ended with input.time_budget_seconds, {settings.time_budget_seconds:g}: "
        "raise it."
    )
    return record.model_copy(
        update={"reason": f"{found.reason} {more_time}", "undecided_count": 1}
    )


@dataclasses.dataclass(frozen=True)
class _Decision:
    choice: choice.Choice
    diagnosis: Diagnosis
    has_searched: bool = True


def _decide(
    source: RecordSource,
    *,
    candidates: Sequence[Candidate],
    search: Search,
    train: TrainStep | None,
    gain: choice.Gain,
    budget: TimeBudget,
) -> _Decision:
    """Measures no more than pays: the pipeline alone, the first candidate alone, then all."""

    def is_worth_it(rates: Diagnosis) -> bool:
        return gain.possible_seconds(rates) >= search.least_seconds(rates)

    def stays(reason: str) -> _Decision:
        return _Decision(choice.Choice(DEFAULT, reason), rates, has_searched=False)

    console.set_status("finding out what holds training up")
    if train:
        rates = alone(search.trained_dataset, batch_size=train.batch_size)
        possible_seconds = gain.possible_seconds(rates)
        shortest_seconds = search.brief_seconds(rates)
        # The training step tells people more. That is worth a share of the gain.
        is_brief = _FIGURE_SHARE * possible_seconds < search.least_seconds(rates)
        if is_brief and possible_seconds >= shortest_seconds:
            found = search.brief(candidates, alone=rates)
            if found:
                return _Decision(found, rates)
            shortest_seconds = search.least_seconds(rates)
        if not is_worth_it(rates):
            return stays(gain.too_little(rates, search_seconds=shortest_seconds))
        train.prepare()
        if budget.left(COMPARED) < rates.round_time_seconds:
            return _Decision(choice.too_few_rounds(), rates)
    rates = diagnose(
        source,
        search.trained_dataset,
        train=train,
        seconds=budget.left(BEGUN),
        is_worth_it=is_worth_it,
        details_worth=lambda rates: _FIGURE_SHARE * gain.possible_seconds(rates),
    )
    if rates.is_fed:
        return stays(rates.verdict)
    if not is_worth_it(rates):
        return stays(gain.too_little(rates, search_seconds=search.least_seconds(rates)))
    most_seconds = _SEARCH_SHARE * gain.possible_seconds(rates)
    budget.limit(max(_AMPLE * search.least_seconds(rates), most_seconds), reached=BEGUN)
    return _Decision(search.run(candidates, diagnosis=rates, gain=gain), rates)


def _all_candidates(service_address: str | None) -> list[Candidate]:
    names = [name for name in candidates_lib.CANDIDATES if name != DEFAULT]
    if service_address:
        names.append(candidates_lib.Service.name)
    return [candidates_lib.make(name, service_address=service_address) for name in names]
