"""The gate's decision: as PerfEvaluator's page, as Markdown, and as JUnit XML."""

import contextlib
import os
import pathlib
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import markdown
import numpy as np

from tfx_perf.core import formatting, metrics
from tfx_perf.gate import baseline
from tfx_perf.gate.decision import GateRecord, RuleResult, Verdict, remedies
from tfx_perf.report import page, plots, step_parts

_REFUSED_FILE_NAME = "refused.html"
_REFUSED = pathlib.Path(__file__).with_name("refused.md")
# Links to other pages of the docs, which do not exist where this page is read; paths replace them.
_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)*(docs/[^)#]+)[^)]*\)")
_SUITE = "tfx-perf gate"
# Characters that XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TITLE = "PerfEvaluator: may this model be pushed?"
_SCRIPT_TITLE = "May this run count as good?"
_COLUMNS = ("metric", "value", "baseline", "change", "tolerance", "allowed", "verdict", "reason")
_NO_BREAK = "\u00a0"


def report_on(record: GateRecord) -> page.Report:
    """Returns the decision, the checks, where a step's time goes, trends and what differs."""
    report = page.Report(
        title=_SCRIPT_TITLE if record.candidate.is_of_script else _TITLE,
        verdict=record.headline,
        tone="good" if record.blessed else "bad",
    )
    ordered = sorted(
        record.outcomes,
        key=lambda item: (not item.refuses, item.verdict.value == "pass", not item.checked),
    )
    _add_remedies(report, ordered, is_of_script=record.candidate.is_of_script)
    checks = [outcome for outcome in ordered if outcome.kind != "drift"]
    _add_checks(report, "Checks", checks, note=_how_it_was_checked(record))
    step_parts.add_to(report, record)
    for outcome in ordered:
        if outcome.kind == "change":
            _add_trend(report, outcome, record)
    _add_step_times(report, record)
    _add_checks(
        report,
        "Cumulative drift",
        [outcome for outcome in ordered if outcome.kind == "drift"],
        note="Small changes, each within its tolerance, may not add up to more than "
        "max_regression. The baseline is the best level that five runs in a row have held, or "
        "the run that gate.reference_run names.",
    )
    _add_environment(report, record)
    return report


def _add_remedies(report: page.Report, outcomes: list[RuleResult], *, is_of_script: bool) -> None:
    note = "If the rule is wrong, change the setting; if the run is slower, find the cause"
    report.add_table(
        "Remedies",
        columns=["refused by", "setting", "it is", "what to do"],
        rows=[
            [", ".join(dict.fromkeys(f"{item.metric} ({item.verdict.value})" for item in answered)),
             remedy.setting, remedy.value, remedy.suggestion]
            for remedy, answered in remedies(outcomes).items()
        ],
        # The guide is about pipelines, and is written beside their reports only.
        note=f"{note}." if is_of_script else f"{note}:",
        link=("", "") if is_of_script else (_REFUSED_FILE_NAME, "What to do about a refusal"),
    )  # fmt: skip


def _how_it_was_checked(record: GateRecord) -> str:
    words = (
        "A change for the worse beyond the tolerance refuses where noise does not explain it: over "
        f"all rules together a run that is no worse is called a regression in at most "
        f"{record.false_alarm_rate:.1%} of runs. Intervals of changes are 90% intervals."
    )
    if record.host_factor > 1:
        words += f" This host's runs vary {record.host_factor:.1f} times as much as expected."
    return words


def _add_checks(
    report: page.Report, title: str, outcomes: Sequence[RuleResult], *, note: str
) -> None:
    rows = []
    for outcome in outcomes:
        cells = _cells(outcome)
        # Two lines at most: the change, and its interval.
        change = cells["change"].replace(" ", _NO_BREAK).replace(f"{_NO_BREAK}(", " (")
        verdict = f"{cells['verdict']} (advisory)" if outcome.advisory else cells["verdict"]
        rows.append({**cells, "change": change, "verdict": verdict})
    report.add_table(title, columns=_COLUMNS, rows=[list(row.values()) for row in rows], note=note)


def _cells(outcome: RuleResult) -> dict[str, str]:
    cells = (
        outcome.metric,
        formatting.format_value(outcome.metric, outcome.value),
        formatting.format_value(outcome.metric, outcome.baseline),
        change_in_words(outcome),
        formatting.MISSING
        if outcome.tolerance is None else f"{outcome.of_baseline(outcome.tolerance):.1%}",
        allowed_in_words(outcome),
        outcome.verdict.value,
        outcome.reason,
    )
    return dict(zip(_COLUMNS, cells, strict=True))


def change_in_words(outcome: RuleResult) -> str:
    """Returns the change with its interval, e.g. `+3.1% (+1.0 to +5.2)`."""
    if outcome.from_baseline is None:
        return formatting.MISSING
    change = outcome.from_baseline
    value, low, high = map(formatting.signed_percent, (change.value, change.low, change.high))
    return f"{value}%" if change.low == change.high else f"{value}% ({low} to {high})"


def allowed_in_words(outcome: RuleResult) -> str:
    """Returns the values that pass, e.g. `≤ 3.30 ms`, or the answer that does.

    An inconclusive value is among them, and may in fact be beyond its max_regression.
    """
    is_flag = metrics.lookup(outcome.metric).unit == "flag"
    bounds = [
        f"{'' if is_flag else sign} {formatting.format_value(outcome.metric, bound)}".lstrip()
        for sign, bound in (("≥", outcome.lowest), ("≤", outcome.highest))
        if bound is not None
    ]
    if bounds and outcome.verdict is Verdict.INCONCLUSIVE:
        bounds[-1] += ", once it is certain"
    return " and ".join(bounds) or formatting.MISSING


def _add_trend(report: page.Report, outcome: RuleResult, record: GateRecord) -> None:
    value, mean = outcome.value, outcome.baseline
    if value is None or mean is None:
        return
    report.add_figure(
        f"Trend of {formatting.label(outcome.metric)}",
        svg=lambda: plots.trend_with_band(
            [
                figure
                for run in record.baseline_runs
                if (figure := run.figure(outcome.metric)) is not None
                and not baseline.is_partial(outcome.metric, run)
            ],
            value,
            key=outcome.metric,
            baseline=(mean, _baseline_in_words(outcome, record)),
            noise=_noise(outcome),
            band=(outcome.lowest, outcome.highest),
            refused=outcome.refuses,
        ),
        note=outcome.reason,
    )


def _baseline_in_words(outcome: RuleResult, record: GateRecord) -> str:
    if record.candidate.gain(outcome.metric) is not None:
        return "Evaluator's baseline\nmodel"
    if metrics.lookup(outcome.metric).is_deterministic:
        return "last blessed run"
    return "mean of the blessed runs\nat their latest level"


def _noise(outcome: RuleResult) -> float:
    """Returns half the 90% interval of the change, in the metric's unit; 0 where it is unknown."""
    difference = (outcome.value or 0.0) - (outcome.baseline or 0.0)
    if not outcome.change or outcome.change_high is None:  # equal, so the scale is unknown
        return 0.0
    return (outcome.change_high - outcome.change) * difference / outcome.change


def _add_step_times(report: page.Report, record: GateRecord) -> None:
    step_times = record.candidate.step_times
    if not step_times:
        return
    shares = np.linspace(0, 1, len(step_times)).tolist()
    series = {"this run": ([1e3 * seconds for seconds in step_times], shares)}
    known = [run.step_times for run in record.baseline_runs]
    same = [times for times in known if len(times) == len(step_times)]
    if same:
        typical = 1e3 * np.median(np.asarray(same), axis=0)
        series["blessed runs, median of each quantile"] = (typical.tolist(), shares)
    report.add_figure(
        "Step times",
        svg=lambda: plots.lines(
            series, xlabel="milliseconds per step, after warm-up", ylabel="share of steps below"
        ),
        note="A curve to the right is slower; a long upper tail is a few slow steps.",
    )


def _add_environment(report: page.Report, record: GateRecord) -> None:
    values = record.candidate.environment
    if not values:  # nothing was recorded, and the decision says so
        return
    report.add_table(
        "Why nothing was compared",
        columns=["property", "latest blessed run", "this run"],
        rows=[[field, old, new] for field, (old, new) in record.differences.items()],
        note="Runs are compared only if these values match; model sizes may differ slightly.",
    )
    if not record.differences:
        report.add_table(
            "Environment",
            columns=["property", "this run"],
            rows=sorted(values.items()),
            note="All compared runs agree in these." if record.baseline_runs else "",
        )


def files_beside(record: GateRecord) -> dict[str, str]:
    """Returns the texts beside a pipeline's page, by their file names."""
    texts = {"evaluation.md": markdown_of(record), "junit.xml": junit_of(record)}
    return texts if record.blessed else {**texts, _REFUSED_FILE_NAME: refused_page()}


def markdown_of(record: GateRecord) -> str:
    """Returns the decision, a table of checks and what to do as Markdown for a pull request."""
    columns = [name for name in _COLUMNS if name != "tolerance"]
    lines = [
        f"**{'Blessed' if record.blessed else 'Refused'}** {_escaped(record.candidate.run_id)}",
        "",
        _escaped(record.headline),
        "",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
    ]
    for outcome in record.outcomes:
        if outcome.kind == "drift" and not outcome.refuses:
            continue
        cells = _cells(outcome)
        cells["metric"] = f"`{outcome.metric}`"
        if outcome.refuses:
            cells["verdict"] = f"**{outcome.verdict.value}**"
        lines.append(f"| {' | '.join(_escaped(cells[column]) for column in columns)} |")
    if advice := [f"- {_escaped(str(remedy))}" for remedy in remedies(record.outcomes)]:
        lines += ["", "Remedies:", "", *advice]
    return "\n".join(lines) + "\n"


def add_to_job_summary(record: GateRecord) -> None:
    """Appends the decision to the summary that GitHub Actions shows of a job, if this is one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as summary:
            summary.write(f"{markdown_of(record)}\n")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def junit_of(record: GateRecord) -> str:
    """Returns one test case for each check, and one for the decision, for a CI system.

    A check that refuses is a failure; one that could not be made, or only reports, is skipped.
    """
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name=_SUITE)
    decision = _case(suite, "decision")
    if not record.blessed:
        _add(decision, "failure", record.headline)
    for outcome in record.outcomes:
        case = _case(suite, f"{outcome.metric} {outcome.kind}")
        if outcome.refuses:
            _add(case, "failure", outcome.reason, type=outcome.verdict.value)
        elif outcome.verdict.value != "pass":
            _add(case, "skipped", f"{outcome.verdict.value}: {outcome.reason}")
    for kind, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(kind, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite)))
    suite.set("errors", "0")
    suite.set("timestamp", record.candidate.time.isoformat(timespec="seconds"))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", name=name, classname=_SUITE, time="0")


def _add(case: ElementTree.Element, tag: str, message: str, **attributes: str) -> None:
    text = _FORBIDDEN.sub("�", message)
    ElementTree.SubElement(case, tag, {"message": text, **attributes}).text = text


def refused_page() -> str:
    """Returns the page on what to do about a refusal as HTML that needs no other file."""
    text = _LINK.sub(r"\1: \2 in tfx-perf's repository", _REFUSED.read_text(encoding="utf-8"))
    body = markdown.markdown(text, extensions=["tables", "fenced_code"])
    return page.template("guide.html.j2").render(body=body)
