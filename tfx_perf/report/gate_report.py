"""PerfEvaluator's report."""

from collections.abc import Iterator

from tfx_perf import formatting
from tfx_perf.gate.outcome import Outcome
from tfx_perf.gate.record import GateRecord
from tfx_perf.report import page, plots


def report_on(record: GateRecord) -> page.Report:
    """Returns the decision, the rules, each ruled metric's trend and what is not comparable."""
    report = page.Report(
        title="PerfEvaluator: may this model be pushed?",
        verdict=record.headline,
        tone="good" if record.blessed else "bad",
    )
    report.add_table(
        "Rules",
        columns=["metric", "kind", "value", "baseline", "change", "allowed", "verdict", "reason"],
        rows=[_row(outcome) for outcome in record.outcomes],
        note=(
            "The baseline is the median of the comparable blessed runs. From three runs on, only "
            "a change beyond both the margin and the runs' 95 % prediction bound is refused."
        ),
    )
    if record.differences:
        report.add_table(
            "Why nothing was compared",
            columns=["field", "latest blessed run", "this run"],
            rows=[[field, old, new] for field, (old, new) in record.differences.items()],
        )
    for metric, svg in _trends(record):
        report.add_figure(f"Trend of {metric}", svg=svg)
    report.add_table(
        "Environment",
        columns=["field", "this run"],
        rows=list(record.candidate.environment.items()),
        note="Only runs that agree in every field are compared.",
    )
    return report


def _row(outcome: Outcome) -> list[str]:
    def shown(value: float | None) -> str:
        return formatting.format_value(outcome.metric, value)

    bounds = [
        f"{sign} {shown(bound)}"
        for sign, bound in (("≥", outcome.lowest), ("≤", outcome.highest))
        if bound is not None
    ]
    return [
        outcome.metric,
        outcome.kind,
        shown(outcome.value),
        shown(outcome.baseline),
        formatting.MISSING if outcome.change is None else f"{outcome.change:+.1%}",
        " and ".join(bounds) or formatting.MISSING,
        outcome.verdict.value,
        outcome.reason,
    ]


def _trends(record: GateRecord) -> Iterator[tuple[str, str]]:
    """Yields metric and plot for each ruled metric that this run shares with a baseline run."""
    for metric in dict.fromkeys(outcome.metric for outcome in record.outcomes):
        blessed = [run.figures[metric] for run in record.baseline_runs if metric in run.figures]
        if not blessed or metric not in record.candidate.figures:
            continue
        here = len(blessed) + 1
        series = {
            "blessed runs": (range(1, here), blessed),
            "this run": ([here], [record.candidate.figures[metric]]),
        }
        bounds = {
            bound
            for outcome in record.outcomes
            if outcome.metric == metric
            for bound in (outcome.lowest, outcome.highest)
            if bound is not None
        }
        for bound in sorted(bounds):
            label = f"allowed: {formatting.format_value(metric, bound)}"
            series[label] = ([1, here], [bound, bound])
        yield metric, plots.lines(
            series, xlabel="comparable runs, oldest first", ylabel=metric,
            markers=True, from_zero=False,
        )
