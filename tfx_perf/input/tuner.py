"""Chooses an input pipeline by measurement."""

import math
from collections.abc import Sequence

from tfx_perf import console
from tfx_perf.advice import Advice
from tfx_perf.config import InputSettings
from tfx_perf.input import candidate as candidate_lib
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import record as record_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input import train_step as train_step_lib
from tfx_perf.input.diagnosis import advice, diagnose
from tfx_perf.input.diagnosis import diagnosis as diagnosis_lib
from tfx_perf.input.proof import file_state
from tfx_perf.input.search import choice as choice_lib
from tfx_perf.input.search import gain as gain_lib
from tfx_perf.input.search import search as search_lib
from tfx_perf.input.search import time_budget as time_budget_lib

# Of what there is to gain: what a search may cost, and each figure that is for people alone.
_SEARCH_SHARE, _FIGURE_SHARE = 0.5, 0.05
_AMPLE = 1.5  # times what the shortest search takes, which every search may


def tune(
    source: source_lib.RecordSource,
    *,
    settings: InputSettings,
    train: train_step_lib.TrainStep | None = None,
    candidates: Sequence[candidate_lib.Candidate] | None = None,
    example_count: int | None = None,
    planned_runs: int = 1,
    spent_seconds: float = 0.0,
) -> record_lib.TuningRecord:
    """Compares the candidates with TFXIO's default and returns the choice.

    First it is found out whether the input is what holds training up; if not, or if a search
    would take longer than a faster input can save, the default stays. Then the candidates are
    examined (same element spec, same examples, no worse shuffle, within the memory budget). The
    first is compared with the default on the user's train step at once, and chosen if it leaves
    nothing to gain that is worth looking for. Else all are compared with nothing else running,
    and the best is tried with one wrapper after the other around it. It must at last beat the
    default on fresh samples, on the user's train step if that is known: unless the lower end of
    the ratio's interval is above 1 + margin, the default stays.

    Args:
        source: the data, with the options of the user's own code; `num_epochs` and `shuffle` are
            replaced.
        settings: budgets and margin.
        train: the user's train step; None to measure the pipelines alone.
        candidates: what to compare with the default; None for all there are.
        example_count: examples in the split, if known, for where it is too large to be read.
        planned_runs: trainings that the choice is for.
        spent_seconds: of the time budget, what is gone already.

    Raises:
        UserError: the default itself cannot be read, or there are no examples.
    """
    budget = time_budget_lib.TimeBudget(
        settings.time_budget_seconds, spent_seconds=spent_seconds
    )
    endless = source.replace_options(num_epochs=None, shuffle=True)
    console.set_status("reading TFXIO's default")
    search = search_lib.Search(endless, settings=settings, train=train, budget=budget)
    reference = search.reference
    count = reference.digest.count if reference.complete else example_count
    console.set_status("finding out what holds training up")
    trained_count = train.trained_example_count(count) if train else None
    gain = gain_lib.Gain(
        math.inf if trained_count is None else planned_runs * trained_count,
        planned_runs=planned_runs,
    )

    def is_worth_it(rates: diagnosis_lib.Diagnosis) -> bool:
        least_seconds = search.least_seconds(rates, example_count=count)
        return gain.possible_seconds(rates) >= least_seconds

    diagnosis = diagnose.diagnose(
        endless,
        train=train,
        seconds=budget.left(search_lib.BEGUN),
        most_seconds=budget.left(search_lib.COMPARED),
        is_worth_it=is_worth_it,
        details_worth=lambda rates: _FIGURE_SHARE * gain.possible_seconds(rates),
    )
    possible_seconds = gain.possible_seconds(diagnosis)
    least_seconds = search.least_seconds(diagnosis, example_count=count)
    has_searched = not diagnosis.is_fed and is_worth_it(diagnosis)
    search.outcomes[record_lib.DEFAULT] = search.outcomes[record_lib.DEFAULT].model_copy(
        update={"examples_per_second": diagnosis.pipeline_examples_per_second}
    )
    if not has_searched:
        reason = (
            diagnosis.verdict
            if diagnosis.is_fed
            else gain.too_little(diagnosis, search_seconds=least_seconds)
        )
        found = choice_lib.Choice(record_lib.DEFAULT, reason)
    else:
        worth_seconds = max(_AMPLE * least_seconds, _SEARCH_SHARE * possible_seconds)
        budget.limit(worth_seconds, reached=search_lib.BEGUN)
        found = search.run(
            _all_candidates(search) if candidates is None else candidates,
            diagnosis=diagnosis,
            gain=gain,
        )
    search.release()
    record = record_lib.TuningRecord(
        chosen=found.name,
        reason=found.reason,
        parameters=search.parameters,
        outcomes=choice_lib.judged(search.outcomes, chosen=found.name, margin=settings.margin),
        batch_size=source.options.batch_size,
        rounds=search.rounds,
        margin=settings.margin,
        memory_budget_bytes=search.memory_budget_bytes,
        memory_budget_configured=settings.memory_budget_bytes is not None,
        example_count=count,
        trained_example_count=trained_count,
        checked_example_count=reference.digest.count,
        file_count=len(source.files),
        file_bytes=source.total_bytes,
        compression=source.compression,
        examined_state=file_state.digest(endless.file_states),
        diagnosis=diagnosis,
        advice=_advice(source, search, diagnosis, example_count=count),
        final=found.final,
        tuning_time_seconds=budget.elapsed_seconds,
        planned_runs=planned_runs,
    )
    if not has_searched or found.name != record_lib.DEFAULT or record.came_to_an_end:
        return record
    reason = f"{found.reason} {_more_time(budget, settings)}"
    return record.model_copy(update={"reason": reason, "undecided_count": 1})


def _more_time(budget: time_budget_lib.TimeBudget, settings: InputSettings) -> str:
    """Returns which setting gives a search more time."""
    if budget.is_limited:
        return (
            "The time ended with what a faster input may save: a larger schedule.planned_runs "
            "gives more."
        )
    seconds = settings.time_budget_seconds
    return f"The time ended with input.time_budget_seconds, {seconds:g}: raise it."


def _all_candidates(search: search_lib.Search) -> list[candidate_lib.Candidate]:
    names = [name for name in candidates_lib.CANDIDATES if name != record_lib.DEFAULT]
    if search.parameters.service_address:
        names.append(candidates_lib.Service.name)
    return [candidates_lib.make(name, search.parameters) for name in names]


def _advice(
    source: source_lib.RecordSource,
    search: search_lib.Search,
    diagnosis: diagnosis_lib.Diagnosis,
    *,
    example_count: int | None,
) -> tuple[Advice, ...]:
    rates = (outcome.examples_per_second for outcome in search.outcomes.values())
    shuffle = search.outcomes[record_lib.DEFAULT].shuffle
    return advice.advise(
        source,
        diagnosis=diagnosis,
        example_count=example_count,
        mixing_ratio=shuffle.mixing_ratio if shuffle else None,
        trial_rates=[rate for rate in rates if rate],
    )
