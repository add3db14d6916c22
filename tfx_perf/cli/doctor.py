"""`tfx-perf doctor`: what is installed, what the machine offers, and what is wrong."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import click
from rich import markup, table

from tfx_perf.cli import terminal

_COLOURS = {"ok": "green", "warn": "yellow", "missing": "dim", "broken": "red"}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="JSON, not a table.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Checks versions, devices, CPU, memory and optional parts.

    The exit code is 1 if something is wrong without which tfx-perf cannot work, or if nobody knows.
    """
    from tfx_perf.cli import checks

    with terminal.working("Loading TFX and TensorFlow"):
        findings = list(checks.examine())
    fatal = [finding for finding in findings if finding.fatal]
    unknown = [finding for finding in findings if finding.open]
    if as_json:
        terminal.show_json(
            {
                "works": not (fatal or unknown),
                "findings": [dataclasses.asdict(finding) for finding in findings],
            }
        )
    else:
        rows = table.Table("item", "value", "status", "remark")
        for finding in findings:
            colour = "red" if finding.fatal else _COLOURS[finding.status]
            rows.add_row(
                markup.escape(finding.item),
                markup.escape(finding.value),
                f"[{colour}]{finding.status}[/]",
                markup.escape(finding.remark),
            )
        terminal.show(rows)
        terminal.show(_verdict(fatal, unknown))
    ctx.exit(1 if fatal or unknown else 0)


def _verdict(fatal: Sequence[Any], unknown: Sequence[Any]) -> str:
    names = ", ".join(finding.item for finding in fatal or unknown)
    if fatal:
        return f"[red]Does not work: {names}.[/]"
    return f"[yellow]Not known yet: {names}.[/]" if unknown else "Everything required works."
