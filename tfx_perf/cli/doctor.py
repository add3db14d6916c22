"""`tfx-perf doctor`: what is installed, what the machine offers, and what is wrong."""

import dataclasses

import click
from rich import console, markup, table

from tfx_perf.cli import terminal

_COLOURS = {"ok": "green", "warn": "yellow", "missing": "dim", "broken": "red"}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="JSON, not a table.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Checks versions, devices, CPU, memory and optional parts.

    The exit code is 1 if something is wrong without which tfx-perf cannot work.
    """
    from tfx_perf.cli import checks

    with console.Console(stderr=True).status("Loading TFX and TensorFlow"):
        findings = list(checks.examine())
    fatal = [finding for finding in findings if finding.fatal]
    if as_json:
        terminal.show_json(
            {
                "works": not fatal,
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
        names = ", ".join(finding.item for finding in fatal)
        terminal.show(f"[red]Does not work: {names}.[/]" if fatal else "Everything required works.")
    ctx.exit(1 if fatal else 0)
