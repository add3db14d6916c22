"""Chooses an input pipeline by measurement, and warns about the data and the options."""

from collections.abc import Iterator, Sequence
from typing import Any

from tfx_perf.config import InputSettings
from tfx_perf.core import console, statistics
from tfx_perf.core.formatting import counted, format_bytes
from tfx_perf.core.records import Advice
from tfx_perf.hardware import host
from tfx_perf.input import candidates as candidates_lib
from tfx_perf.input import choice
from tfx_perf.input.budget import TimeBudget
from tfx_perf.input.candidates.candidate import Candidate
from tfx_perf.input.candidates.source import RecordSource
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.measure import TrainStep
from tfx_perf.input.record import DEFAULT, TuningRecord
from tfx_perf.input.search import Search
from tfx_perf.input.stages import Stage

_READING = ("read", "decompress", "records")
_PER_BATCH = ("batch", "parse", "rename")
_LARGEST_FILE_SHARE = 0.5  # files are skewed if one of several has a larger share of the bytes
_FAIR_SHARES = 2  # times its fair share that the largest file must also have
_FEW_FILES = 10  # fewer are not mixed by reading files in random order
_SMALL_BUFFER_SHARE = 0.1  # a shuffle buffer for a smaller share of the examples is small
_POOR_MIXING = 0.5  # mixing below this share of a full shuffle's is poor
_TINY_BATCH = 64
_DROPPED_SHARE = 0.05  # dropping a larger share of the examples deserves advice
_NOISE = 0.2  # half width of an interval over its value


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


def advise(
    source: RecordSource,
    *,
    diagnosis: Diagnosis,
    example_count: int | None = None,
    mixing_ratio: float | None = None,
    trial_rates: Sequence[statistics.Interval] = (),
) -> tuple[Advice, ...]:
    """Returns what to change; if training is fed, only what changes the training itself."""
    rates = [diagnosis.pipeline_examples_per_second, *trial_rates]
    advices = [
        *_shuffle_advice(source, example_count=example_count, mixing_ratio=mixing_ratio),
        *_drop_advice(source.options, example_count=example_count),
        *_noise_advice(rates),
    ]
    if diagnosis.is_fed:
        return tuple(advices)
    worst = diagnosis.bottleneck
    if worst and worst.name in _READING:
        advices += _file_advice(source, worst)
    if worst and worst.name in _PER_BATCH:
        advices += _batch_advice(source.options.batch_size, worst)
    return tuple(advices)


def _file_advice(source: RecordSource, worst: Stage) -> Iterator[Advice]:
    count, cpus = len(source.files), host.cpu_count()
    takes = f"{worst.name} takes {worst.share:.0%} of the input's time"
    if count == 1 and source.compression:
        yield Advice(
            code="one_gzip_file",
            message=f"{takes}, and the split is one gzip file of "
            f"{format_bytes(source.total_bytes)}, which only one thread can "
            "decompress: write more files, or keep it in RAM.",
        )
    elif count < cpus:
        yield Advice(
            code="few_files",
            message=f"{takes}, and the split has {counted(count, 'file')} for {cpus} CPUs: write "
            f"at least {cpus} files, so that all of them can read.",
        )
    largest = max(state.size_bytes for state in source.file_states)
    share = largest / max(source.total_bytes, 1)
    if count > 1 and share > max(_LARGEST_FILE_SHARE, _FAIR_SHARES / count):
        yield Advice(
            code="skewed_files",
            message=f"{takes}, and one of {count} files holds {share:.0%} of the bytes, so that "
            "most of an epoch is read by one thread: write files of even size.",
        )


def _shuffle_advice(
    source: RecordSource, *, example_count: int | None, mixing_ratio: float | None
) -> Iterator[Advice]:
    buffer = source.options.shuffle_buffer_size
    if not source.options.shuffle or (example_count is not None and buffer >= example_count):
        return
    if mixing_ratio is not None:
        poor = mixing_ratio < _POOR_MIXING
        evidence = f"batches are mixed {mixing_ratio:.0%} as well as by a full shuffle"
    else:
        small = example_count is not None and buffer < _SMALL_BUFFER_SHARE * example_count
        poor = small and len(source.files) < _FEW_FILES
        evidence = f"it holds {buffer / example_count:.1%} of the examples" if poor else ""
    if poor:
        yield Advice(
            code="small_shuffle_buffer",
            message=f"The shuffle buffer of {buffer:,} examples is small for "
            f"{counted(len(source.files), 'file')}: {evidence}; raise shuffle_buffer_size, write "
            "more files, or use a pipeline that shuffles the whole split (columns).",
        )


def _drop_advice(options: Any, *, example_count: int | None) -> Iterator[Advice]:
    epochs = options.num_epochs or -1  # both are without end
    if not (options.drop_final_batch and epochs > 0 and example_count):
        return
    total = example_count * epochs
    dropped = total % options.batch_size
    if dropped > _DROPPED_SHARE * total:
        yield Advice(
            code="dropped_examples",
            message=f"drop_final_batch leaves {dropped:,} of {total:,} examples "
            f"({dropped / total:.0%}) out of training at batch size {options.batch_size:,}: turn "
            "it off, or take a smaller batch.",
        )


def _batch_advice(batch_size: int, worst: Stage) -> Iterator[Advice]:
    if batch_size < _TINY_BATCH:
        yield Advice(
            code="tiny_batch",
            message=f"{worst.name} takes {worst.share:.0%} of the input's time at "
            f"{counted(batch_size, 'example')} a batch, so few share the cost of each call: "
            "finish many batches in one call (block_reader, columns), or train on larger ones.",
        )


def _noise_advice(rates: Sequence[statistics.Interval]) -> Iterator[Advice]:
    noise = max((rate.high - rate.low) / 2 / rate.value for rate in rates)
    if noise > _NOISE:
        yield Advice(
            code="noisy_machine",
            message=f"The same pipeline's rate varied by ±{noise:.0%} between rounds, so only "
            "large differences show: measure again on a quiet machine.",
        )
