"""`tfx-perf compare`: what differs between two runs."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from rich import box, markup, table

from tfx_perf import errors, formatting, storage
from tfx_perf.cli import names, terminal

if TYPE_CHECKING:
    from tfx_perf.gate.comparison import Comparison, Difference
    from tfx_perf.mlmd.runs import RecordedRun


@click.command("compare")
@click.argument("before", metavar="RUN")
@click.argument("after", metavar="RUN")
@click.option(
    "--source", metavar="SOURCE",
    help="ML Metadata (a SQLite file, mysql://… or postgresql://…), a ledger, or a baseline_uri.",
)  # fmt: skip
@click.option("--pipeline", metavar="NAME", help="Only this pipeline's runs.")
@click.option("--node", metavar="ID", help="Only what this PerfEvaluator has judged.")
@click.option("--json", "as_json", is_flag=True, help="JSON with plain SI units, not tables.")
def command(
    *,
    before: str,
    after: str,
    source: str | None,
    pipeline: str | None,
    node: str | None,
    as_json: bool,
) -> None:
    """Shows what differs in plan, environment and figures, the largest difference first.

    Each RUN is the id of a run in SOURCE, or the beginning of one; or the path of an
    evaluation.json or metrics.json, or of its folder.
    """
    from tfx_perf.gate import comparison

    runs = [_find(name, source=source, pipeline=pipeline, node=node) for name in (before, after)]
    found = comparison.compare(*runs)
    if as_json:
        terminal.show_json(_as_json(runs, found))
    else:
        _show(runs, found)


def _find(
    name: str, *, source: str | None, pipeline: str | None, node: str | None
) -> "RecordedRun":
    from tfx_perf.gate import history

    if storage.exists(name):
        return history.read_artifact(name)
    if source is None:
        raise errors.UserError(
            "Expected the path of an evaluation.json or metrics.json, or a run's id with --source."
            f" Received: run={name}, which is no path."
        )
    return names.pick_run(name, history.read(source, pipeline=pipeline), node=node)


def _as_json(runs: "list[RecordedRun]", found: "Comparison") -> dict[str, Any]:
    document = dataclasses.asdict(found)
    for key in ("figures", "times"):
        for values, difference in zip(document[key], getattr(found, key), strict=True):
            values["ratio"] = difference.ratio
    return {"runs": [run.run_id for run in runs], "comparable": not found.environment, **document}


def _show(runs: "list[RecordedRun]", found: "Comparison") -> None:
    headings = ("before", "after")
    for heading, run in zip(headings, runs, strict=True):
        terminal.show(f"{heading:<7} {markup.escape(run.run_id)}")
    _show_values("Plan", found.plans)
    _show_values("Environment: not comparable", found.environment)
    if found.times:
        rows = _table("Time of training, largest difference first", "difference")
        for part in found.times:
            sign = "-" if part.seconds < 0 else "+"
            shown = (part.before or 0.0, part.after or 0.0, abs(part.seconds))
            before, after, difference = map(formatting.format_seconds, shown)
            rows.add_row(part.name, before, after, sign + difference)
        terminal.show(rows)
    if found.figures:
        rows = _table("Figures, largest factor first", "change")
        for changed in found.figures:
            rows.add_row(*_row(changed))
        terminal.show(rows)
    equal = "figure is" if found.equal_count == 1 else "figures are"
    terminal.show(f"{found.equal_count} further {equal} equal.")


def _show_values(title: str, values: Mapping[str, tuple[str, str]]) -> None:
    if values:
        rows = table.Table("", "before", "after", title=title, box=box.SIMPLE_HEAD,
                           title_justify="left")  # fmt: skip
        for name, pair in values.items():
            rows.add_row(name, *map(markup.escape, pair))
        terminal.show(rows)


def _table(title: str, last: str) -> table.Table:
    rows = table.Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    rows.add_column("")
    for heading in ("before", "after", last):
        rows.add_column(heading, justify="right", no_wrap=True)
    return rows


def _row(difference: "Difference") -> tuple[str, ...]:
    key = difference.name
    shown = (formatting.format_value(key, value) for value in (difference.before, difference.after))
    change = formatting.MISSING
    if difference.ratio is not None:
        change = f"{formatting.signed_percent(difference.ratio - 1)}%"
    if difference.better is not None:
        change = f"[{'green' if difference.better else 'red'}]{change}[/]"
    return key, *shown, change
