"""`tfx-perf history`: the runs of a pipeline and their figures."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich import box, markup, table

from tfx_perf.cli import names, options, terminal
from tfx_perf.core import errors, formatting, metrics

if TYPE_CHECKING:
    from tfx_perf.mlmd.runs import RecordedRun

_DEFAULT_METRICS = (
    "examples_per_second",
    "step_time_seconds",
    "training_memory_bytes",
    "mfu_ratio",
    "train_loss",
)
_BARS = "▁▂▃▄▅▆▇█"
_MARKS = {True: ("●", "green"), False: ("✗", "red"), None: ("·", "dim")}


@click.command("history")
@click.argument("source")
@click.option("--pipeline", metavar="NAME", help="Only this pipeline's runs.")
@click.option(
    "--metric",
    "keys",
    metavar="KEY",
    multiple=True,
    help="A metric to show, evaluation/NAME for one of Evaluator's; may be repeated. By default "
    "speed, memory, MFU and loss in the tables, and everything in JSON.",
)
@click.option(
    "--limit", metavar="N", type=options.WholeNumber(min=1), default=20, show_default=True,
    help="How many runs at most.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="JSON with plain SI units, not a table.")
@click.option("--html", "html_path", metavar="FILE", help="Also write a page with plots.")
def command(
    *,
    source: str,
    pipeline: str | None,
    keys: tuple[str, ...],
    limit: int,
    as_json: bool,
    html_path: str | None,
) -> None:
    """Lists the runs in SOURCE, newest first, and their trends.

    SOURCE is ML Metadata that a pipeline records its runs in (a SQLite file, or
    mysql://user:password@host:port/database, or postgresql://…), or a ledger of blessed
    runs (its JSON file, or the gate's baseline_uri), or a folder that has the SQLite
    file in it or beside it: a project, a pipeline's root; or the folder of a script's figures,
    which has its last run. It is only read.
    """
    keys = tuple(_key(name) for name in keys)
    # Imported here: its protobufs and gRPC take longer than the rest of the command line.
    from tfx_perf.gate import history
    from tfx_perf.mlmd import runs as recorded_runs

    runs = history.read(source, pipeline=pipeline, limit=limit)
    known = sorted({key for run in runs for key in run.metrics if metrics.is_evaluation(key)})
    keys = tuple(
        names.pick(key, known, what="metric") if runs and metrics.is_evaluation(key) else key
        for key in keys
    )
    if html_path:
        _write_page(runs, keys or _DEFAULT_METRICS, html_path)
    if as_json:
        terminal.show_json([_as_json(run, keys) for run in runs])
    elif runs:
        has_gates = recorded_runs.are_several(runs, "node")
        terminal.show(_as_table(runs, keys or _DEFAULT_METRICS, has_gates=has_gates))
        if runs[0].blessed is False and runs[0].headline and not runs[0].note:
            click.echo(_refusal(runs[0]))
        alike = recorded_runs.alike(runs)
        if other := _other_plan(next(iter(alike.values()))):
            click.echo(other)
        for whose, those in alike.items():
            if len(those) > 1 and any(run.metrics for run in those):
                terminal.show(_trends(those[::-1], keys or _DEFAULT_METRICS, whose=whose))
    else:
        whose = f" of {pipeline}" if pipeline else ""
        click.echo(f"No runs{whose} found in {source}.")


def _key(name: str) -> str:
    if metrics.is_evaluation(name):  # only the runs can tell
        return name
    return names.pick(metrics.new_key(name), list(metrics.CATALOGUE), what="metric")


def _write_page(runs: "Sequence[RecordedRun]", keys: Sequence[str], path: str) -> None:
    from tfx_perf.report import history as history_report

    with errors.writing_to("html", path):
        page = history_report.report_on(runs, keys, folder=pathlib.Path(path).parent)
        page.write(pathlib.Path(path))


def _as_json(run: "RecordedRun", keys: Sequence[str]) -> dict[str, Any]:
    values = dataclasses.asdict(run) | {"created": run.created.isoformat()}
    if keys:
        values["metrics"] = {key: run.metrics.get(key) for key in keys}
    return values


def _as_table(
    runs: "Sequence[RecordedRun]", keys: Sequence[str], *, has_gates: bool
) -> table.Table:
    several = len({run.pipeline for run in runs}) > 1
    pipeline = f" of {markup.escape(runs[0].pipeline)}" if runs[0].pipeline else ""
    replaced = runs[0].replaced_runs
    run_count = len({(run.pipeline, run.run_id) for run in runs})
    count = f"the last of {replaced + 1} runs" if replaced else formatting.counted(run_count, "run")
    title = None if several else f"{count}{pipeline}"
    rows = table.Table(title=title, box=box.SIMPLE_HEAD)
    rows.add_column("run", overflow="fold", min_width=16)
    for key in keys:
        heading = markup.escape(formatting.label(key)).replace(" ", "\n")
        rows.add_column(heading, justify="right", no_wrap=True)
    shows_who = any(run.trained_on not in ("", "1 replica") for run in runs)
    if shows_who:
        rows.add_column("trained on")
    rows.add_column("outcome", min_width=10)
    for run in runs:
        name = f"{run.pipeline} {run.run_id}" if several else run.run_id
        name = f"{name} {run.node}" if has_gates else name
        figures = (formatting.format_value(key, run.metrics.get(key)) for key in keys)
        who = [run.trained_on or formatting.MISSING] if shows_who else []
        rows.add_row(markup.escape(name), *figures, *who, _outcome(run))
    return rows


def _refusal(run: "RecordedRun") -> str:
    from tfx_perf.report import page

    folder = run.folders.get("PerfEvaluation")
    where = f" Report: {folder}/{page.FILE_NAME}" if folder else ""
    return f"{run.run_id}: {run.headline}{where}"


def _other_plan(runs: "Sequence[RecordedRun]") -> str:
    """Returns the plans of a gate's last two runs; empty if they are the same, or not known."""
    gate = runs[0].pipeline, runs[0].node
    last = [run for run in runs if (run.pipeline, run.node) == gate][:2]
    plans = [run.plans.get("training plan") for run in last]
    if None in plans or len(set(plans)) == 1:
        return ""
    newest, before = last
    return f"{newest.run_id} was trained with {plans[0]}, {before.run_id} with {plans[1]}."


def _outcome(run: "RecordedRun") -> str:
    """Returns how far the run got, e.g. `complete, blessed, pushed`."""
    words = [run.state_in_words]
    if run.note:
        words.append(f"[{_MARKS[run.blessed][1]}]{markup.escape(run.note)}[/]")
    elif run.blessed is not None:
        words.append("[green]blessed[/]" if run.blessed else "[red]refused[/]")
    if run.pushed is not None:
        words.append("pushed" if run.pushed else "not pushed")
    return ", ".join(words)


def _trends(runs: "Sequence[RecordedRun]", keys: Sequence[str], *, whose: str) -> table.Table:
    of_them = f" of {markup.escape(whose)}" if whose else ""
    rows = table.Table(
        title=f"Trends{of_them}, oldest run first", box=box.SIMPLE_HEAD,
        caption="● blessed  ✗ refused or revoked  · not judged", caption_justify="left",
    )  # fmt: skip
    rows.add_column("")
    rows.add_column("", no_wrap=True)
    for heading in ("lowest", "highest", "latest"):
        rows.add_column(heading, justify="right", no_wrap=True)
    marks = [_MARKS[run.blessed] for run in runs]
    rows.add_row("verdict", "".join(f"[{color}]{mark}[/]" for mark, color in marks), "", "", "")
    for key in keys:
        values = [run.metrics.get(key) for run in runs]
        known = [value for value in values if value is not None]
        if known:
            drawn = zip(bars(values), marks, strict=True)
            figures = (min(known), max(known), values[-1])
            rows.add_row(
                markup.escape(formatting.label(key)),
                "".join(f"[{color}]{bar}[/]" for bar, (_, color) in drawn),
                *(formatting.format_value(key, figure) for figure in figures),
            )
    return rows


def bars(values: Sequence[float | None]) -> str:
    """Returns one character per value, e.g. `▁▂ █` for 1, 2, None and 8."""
    known = [value for value in values if value is not None]
    if not known:
        return " " * len(values)
    low, span = min(known), max(known) - min(known)

    def bar(value: float) -> str:
        share = (value - low) / span if span else 0.5
        return _BARS[min(int(share * len(_BARS)), len(_BARS) - 1)]

    return "".join(" " if value is None else bar(value) for value in values)
