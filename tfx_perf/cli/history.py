"""`tfx-perf history`: the runs of a pipeline and what was measured in them."""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich import box, markup, table

from tfx_perf import errors, formatting, metrics
from tfx_perf.cli import terminal

if TYPE_CHECKING:
    from tfx_perf.metadata import Run

_DEFAULT_METRICS = (
    "examples_per_second",
    "step_time_seconds",
    "peak_memory_bytes",
    "mfu_ratio",
    "train_loss",
)


@click.command("history")
@click.argument("metadata_db", type=click.Path())
@click.option("--pipeline", metavar="NAME", help="Only this pipeline's runs.")
@click.option(
    "--metric",
    "keys",
    metavar="KEY",
    multiple=True,
    help="A metric to show, may be repeated; by default speed, memory, MFU and loss in the "
    "table, and everything in JSON.",
)
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), default=20, show_default=True,
    help="How many runs at most.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="JSON with plain SI units, not a table.")
def command(
    *, metadata_db: str, pipeline: str | None, keys: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """Lists the runs in METADATA_DB, newest first.

    METADATA_DB is the SQLite file of ML Metadata that the pipeline records its runs in. It
    is only read.
    """
    _check_keys(keys)
    # Imported here: its protobufs and gRPC take longer than the rest of the command line.
    from tfx_perf import metadata

    runs = metadata.read_runs(metadata_db, pipeline=pipeline, limit=limit)
    if as_json:
        terminal.show_json([_as_json(run, keys) for run in runs])
    elif runs:
        terminal.show(_as_table(runs, keys or _DEFAULT_METRICS))
    else:
        terminal.show(f"{markup.escape(metadata_db)} holds no runs.")


def _check_keys(keys: Sequence[str]) -> None:
    for key in keys:
        if key not in metrics.CATALOGUE:
            similar = difflib.get_close_matches(key, metrics.CATALOGUE) or sorted(metrics.CATALOGUE)
            raise errors.UserError(
                f"Expected a metric of the catalogue, e.g. {', '.join(similar[:5])}. "
                f"Received: metric={key}."
            )


def _as_json(run: "Run", keys: Sequence[str]) -> dict[str, Any]:
    values = dataclasses.asdict(run) | {"created": run.created.isoformat()}
    if keys:
        values["metrics"] = {key: run.metrics.get(key) for key in keys}
    return values


def _as_table(runs: Sequence["Run"], keys: Sequence[str]) -> table.Table:
    several = len({run.pipeline for run in runs}) > 1
    title = None if several else f"{len(runs)} runs of {markup.escape(runs[0].pipeline)}"
    rows = table.Table(title=title, box=box.SIMPLE_HEAD)
    rows.add_column("run", overflow="fold", min_width=16)
    for key in keys:
        rows.add_column(formatting.label(key).replace(" ", "\n"), justify="right", no_wrap=True)
    rows.add_column("outcome", min_width=10)
    for run in runs:
        name = f"{run.pipeline} {run.run_id}" if several else run.run_id
        figures = (formatting.format_value(key, run.metrics.get(key)) for key in keys)
        rows.add_row(markup.escape(name), *figures, _outcome(run))
    return rows


def _outcome(run: "Run") -> str:
    """Returns how far the run got, e.g. `complete, blessed, pushed`."""
    words = [run.state]
    if run.blessed is not None:
        words.append("[green]blessed[/]" if run.blessed else "[red]refused[/]")
    if run.pushed is not None:
        words.append("pushed" if run.pushed else "not pushed")
    return ", ".join(words)
