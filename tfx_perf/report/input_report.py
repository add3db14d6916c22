"""InputTuner's report."""

from tfx_perf import formatting, statistics
from tfx_perf.input import record as record_lib
from tfx_perf.report import page, plots


def report_on(record: record_lib.TuningRecord) -> page.Report:
    """Returns the report on a tuning: the choice, every candidate, the data."""
    improved = record.chosen != record_lib.DEFAULT
    report = page.Report(
        title="InputTuner: how to read the examples",
        verdict=record.reason,
        tone="good" if improved else "neutral",
    )
    measured = [outcome for outcome in record.outcomes if outcome.examples_per_second]
    report.add_figure(
        "Speed of the input pipeline alone",
        svg=plots.interval_bars(
            [_bar(outcome.name, outcome.examples_per_second) for outcome in measured],
            xlabel=f"examples per second at batch size {record.batch_size}, 95 % interval",
            highlight=record.chosen,
        ),
        note=f"Median of {record.rounds} rounds. In each round every candidate had its turn: a "
        "fresh iterator, a warm-up, then a timed block of batches.",
    )
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
        ],
        rows=[_row(outcome) for outcome in record.outcomes],
        note=f"A candidate must be faster than the default by more than {record.margin:.0%} beyond "
        "its interval. Preparation: from the first call to the first batch, once a process. "
        f"Memory budget: {formatting.format_bytes(record.memory_budget_bytes)}"
        f" ({'configured' if record.memory_budget_configured else 'half of what was free'}).",
    )
    report.add_table(
        "How they work",
        columns=["candidate", "description"],
        rows=[(outcome.name, outcome.description) for outcome in record.outcomes],
    )
    report.add_table(
        "Data",
        columns=["what", "value"],
        rows=[
            ("examples", _count(record.example_count)),
            ("examples compared with the default's", _count(record.checked_example_count)),
            ("files", _count(record.file_count)),
            ("size on disk", formatting.format_bytes(record.file_bytes)),
            ("compression", record.compression or "none"),
            ("wall time of the search", formatting.format_seconds(record.tuning_time_seconds)),
        ],
    )
    return report


def _bar(name: str, interval: statistics.Interval) -> tuple[str, float, float, float]:
    return name, interval.value, interval.low, interval.high


def _row(outcome: record_lib.CandidateOutcome) -> tuple[str, ...]:
    verdict = f"{outcome.status}: {outcome.reason}" if outcome.reason else outcome.status
    if not outcome.examples_per_second:
        return outcome.name, verdict, *[formatting.MISSING] * 5
    ratio = outcome.ratio
    return (
        outcome.name,
        verdict,
        f"{outcome.examples_per_second.value:,.0f}",
        f"{ratio.value:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]",
        f"{outcome.cpu_seconds_per_example * 1e6:.3g} µs",
        formatting.format_seconds(outcome.preparation_seconds),
        formatting.format_bytes(outcome.resident_bytes),
    )


def _count(value: int | None) -> str:
    return formatting.MISSING if value is None else f"{value:,}"
