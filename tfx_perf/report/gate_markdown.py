"""The gate's decision as Markdown, for a pull request or a CI system's summary."""

from tfx_perf import formatting
from tfx_perf.gate.decision import GateRecord
from tfx_perf.report import gate as gate_report

FILE_NAME = "evaluation.md"


def markdown_of(record: GateRecord) -> str:
    """Returns the decision, a table row for each check, and what to do.

    A budget has a row only if it is used up.
    """
    columns = ["metric", "value", "baseline", "change", "allowed", "verdict", "reason"]
    lines = [
        f"**{'Blessed' if record.blessed else 'Refused'}** {_escaped(record.candidate.run_id)}",
        "",
        _escaped(record.headline),
        "",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
    ]
    for outcome in record.outcomes:
        verdict = outcome.verdict.value
        if outcome.kind == "drift" and not outcome.refuses:
            continue
        cells = [
            f"`{outcome.metric}`",
            formatting.format_value(outcome.metric, outcome.value),
            formatting.format_value(outcome.metric, outcome.baseline),
            gate_report.change_in_words(outcome),
            gate_report.allowed_in_words(outcome),
            f"**{verdict}**" if outcome.refuses else verdict,
            outcome.reason,
        ]
        lines.append(f"| {' | '.join(map(_escaped, cells))} |")
    remedies = [f"- {_escaped(str(item.remedy))}" for item in record.outcomes if item.remedy]
    if remedies:
        lines += ["", "What to do:", "", *remedies]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Keeps a text from ending its cell or its line."""
    return text.replace("|", "\\|").replace("\n", " ")
