"""InputTuner's report."""

from collections.abc import Iterable

from tfx_perf.core import formatting, statistics
from tfx_perf.input import diagnosis as diagnosis_lib
from tfx_perf.input import record as record_lib
from tfx_perf.report import page, plots


def report_on(record: record_lib.TuningRecord, *, runs_are_planned: bool = False) -> page.Report:
    """Returns the report on a tuning: advice with reasons, then measurements, then the data."""
    cost = _cost(record, runs_are_planned=runs_are_planned)
    reason = f"As in an earlier run: {record.reason}" if record.reused_from else record.reason
    report = page.Report(
        title="InputTuner: how to read the examples",
        verdict=" ".join(filter(None, [reason, record.training_remark, cost])),
        tone="good" if record.chosen != record_lib.DEFAULT else "neutral",
    )
    if record.reused_from:
        report.add_text("From cache", note=_used_again(record))
    report.add_table(
        "Warnings",
        columns=["what", "measured, and what helps"],
        rows=[(advice.code.replace("_", " "), advice.message) for advice in record.advice],
    )
    if record.diagnosis:
        _add_diagnosis(report, record.diagnosis)
    _add_final(report, record)
    _add_candidates(report, record)
    _add_data(report, record)
    return report


def _cost(record: record_lib.TuningRecord, *, runs_are_planned: bool) -> str:
    if record.reused_from:
        return ""
    return formatting.cost_sentence(
        "Measuring",
        cost_seconds=record.tuning_time_seconds,
        saved_seconds=record.saving_seconds,
        run_count=record.expected_runs,
        is_planned=runs_are_planned,
    )


def _used_again(record: record_lib.TuningRecord) -> str:
    was = record.measured_on
    if was is None:
        return (
            "From cache: data, code, host and versions are those of an earlier plan, "
            f"{record.reused_from}, which was measured as follows."
        )
    if record.chosen == record_lib.DEFAULT:
        check = "TFXIO's default needs no check on these."
    else:
        check = (
            f"On these it was checked and not measured: {record.chosen} gives the same "
            f"{record.checked_example_count:,} examples as the default, within the memory budget."
        )
    files = formatting.counted(was.file_count, "file")
    amount = f"{files}, {formatting.format_bytes(was.file_bytes)}"
    if not record.key or record.undecided_count:
        why = (
            "the time of a search ended before it could tell what is faster"
            if record.undecided_count
            else "a search would cost more than it can save"
        )
        return (
            "The code, the data, the settings or the versions have changed since, but "
            f"{why}. So an earlier plan, {record.reused_from}, stays "
            f"in use. {check} The rates that follow were measured then ({amount})."
        )
    return (
        "The code, the host and the versions are those of an earlier plan, "
        f"{record.reused_from}, which was measured on other data of about this amount "
        f"({amount}). {check} The rates that follow are of those data."
    )


def _add_diagnosis(report: page.Report, diagnosis: diagnosis_lib.Diagnosis) -> None:
    rates = {
        "input alone": diagnosis.pipeline_examples_per_second,
        "step alone": diagnosis.train_examples_per_second,
        "both together": diagnosis.together_examples_per_second,
    }
    if diagnosis.train_examples_per_second:  # otherwise there is nothing to compare
        report.add_figure(
            "Bottleneck with TFXIO's default",
            svg=lambda: plots.interval_bars(
                [(name, rate) for name, rate in rates.items() if rate],
                xlabel=f"examples per second, {diagnosis.pipeline_examples_per_second.name}",
                highlight="both together",
            ),
            note=diagnosis.verdict,
        )
    if diagnosis.stages:
        sizes = {stage.name: stage.seconds_per_example * 1e6 for stage in diagnosis.stages}
        report.add_figure(
            "Where the default's time goes",
            svg=lambda: plots.stacked_bars({"default": sizes}, xlabel="microseconds per example"),
            note="The pipeline cut after each stage, all cuts measured in turns; what a stage "
            "adds is the difference to the cut before. What runs hidden behind a slower stage "
            "adds nothing.",
        )
        report.add_table(
            "Stages",
            columns=["stage", "share", "examples/s up to here", "bytes/s into it", "remedy"],
            rows=[
                (
                    stage.name,
                    f"{stage.share:.0%}",
                    f"{stage.examples_per_second:,.0f}",
                    f"{formatting.format_bytes(stage.bytes_per_second)}/s",
                    stage.remedy if stage is diagnosis.bottleneck else "",
                )
                for stage in diagnosis.stages
            ],
        )
    else:
        report.add_text(
            "Where the default's time goes",
            note="Not measured: one round of it takes longer than a faster input is worth here, "
            "or than the time budget left. A larger input.tuning_seconds, or more "
            "schedule.expected_runs, make room.",
        )


def _add_final(report: page.Report, record: record_lib.TuningRecord) -> None:
    final = record.final
    if final is None:
        return
    consumer = "the train step" if final.on_train_step else "none (batches are only read)"
    rows = [
        ("candidate", final.candidate),
        ("consumer", consumer),
        ("default", f"{final.default_examples_per_second.value:,.0f} examples/s"),
        ("tuned", f"{final.tuned_examples_per_second.value:,.0f} examples/s"),
        ("tuned over default", _interval(final.ratio)),
    ]
    if final.fed_ratio:
        rows.append(("tuned over one batch repeated from memory", _interval(final.fed_ratio)))
    report.add_table(
        "The last comparison",
        columns=["what", "value"],
        rows=rows,
        note=f"Median of {final.rounds} fresh rounds{_brackets([final.ratio])}, taken after the "
        "candidate was picked, so the choice among several does not bias it. The lower "
        f"end must be above {1 + record.margin:.2f}, or the default stays.",
    )


def _add_candidates(report: page.Report, record: record_lib.TuningRecord) -> None:
    rates = [
        (outcome.name, outcome.examples_per_second)
        for outcome in record.outcomes
        if outcome.examples_per_second
    ]
    if len(rates) > 1:  # otherwise the diagnosis shows the only rate
        report.add_figure(
            "Speed of the candidates without training",
            svg=lambda: plots.interval_bars(
                rates,
                xlabel=f"examples per second at batch size {record.batch_size}, "
                + _names(rate for _, rate in rates),
                highlight=record.chosen,
            ),
            note=f"Median of up to {formatting.counted(record.rounds, 'round')}. In each, every "
            "candidate had its turn: a fresh iterator, a warm-up, then a timed block of batches.",
        )
    ratios = [outcome.ratio for outcome in record.outcomes if outcome.ratio]
    report.add_table(
        "Candidates",
        columns=[
            "candidate",
            "outcome",
            "examples/s",
            "times default",
            "CPU per example",
            "preparation",
            "memory",
            "shuffle: moved / mixed",
        ],
        rows=[_row(outcome) for outcome in record.outcomes],
        note="Preparation: from the first call to the first batch, once a process. Shuffle: "
        "how far examples move, and how far apart those of a batch were; 1 is a full shuffle. "
        f"Memory budget: {formatting.format_bytes(record.memory_budget_bytes)}"
        f" ({'configured' if record.memory_budget_configured else 'half of what was free'})."
        f" Times default: median{_brackets(ratios)}.",
    )
    report.add_table(
        "How the candidates work",
        columns=["candidate", "description"],
        rows=[(outcome.name, outcome.description) for outcome in record.outcomes],
    )


def _add_data(report: page.Report, record: record_lib.TuningRecord) -> None:
    searching = "checking the plan" if record.reused_from else "the search"
    rows = [
        ("examples", _count(record.example_count)),
        ("examples compared with the default's", _count(record.checked_example_count)),
        ("files", _count(record.file_count)),
        ("size on disk", formatting.format_bytes(record.file_bytes)),
        ("compression", record.compression or "none"),
        (f"wall time of {searching}", formatting.format_seconds(record.tuning_time_seconds)),
    ]
    if record.training_note:
        rows.append(("train step", record.training_note))
    report.add_table("Data", columns=["what", "value"], rows=rows)


def _row(outcome: record_lib.CandidateOutcome) -> tuple[str, ...]:
    rate, shuffle = outcome.examples_per_second, outcome.shuffle
    cpu_seconds = outcome.cpu_seconds_per_example
    cells = (
        outcome.name,
        f"{outcome.status}: {outcome.reason}" if outcome.reason else outcome.status,
        rate and f"{rate.value:,.0f}",
        outcome.ratio and _interval(outcome.ratio),
        None if cpu_seconds is None else f"{cpu_seconds * 1e6:.3g} µs",
        formatting.format_seconds(outcome.preparation_seconds),
        formatting.format_bytes(outcome.resident_bytes),
        shuffle and f"{shuffle.displacement_ratio:.2f} / {shuffle.mixing_ratio:.2f}",
    )
    return tuple(cell or formatting.MISSING for cell in cells)


def _interval(interval: statistics.Interval) -> str:
    if interval.sample_count == 1:
        return f"{interval.value:.3g}"
    return f"{interval.value:.3g} [{interval.low:.3g}, {interval.high:.3g}]"


def _names(intervals: Iterable[statistics.Interval]) -> str:
    return " or ".join(sorted({interval.name for interval in intervals}))


def _brackets(intervals: Iterable[statistics.Interval]) -> str:
    several = _names(interval for interval in intervals if interval.sample_count != 1)
    return f", in brackets the {several}" if several else ""


def _count(value: float | None) -> str:
    return formatting.MISSING if value is None else f"{value:,.0f}"
