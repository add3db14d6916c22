"""How the subcommands write to the terminal."""

import json
from typing import Any

import click
from rich import console, table

# Pipes and files have no width of their own; narrow tables there would cut figures.
_WIDTH_WITHOUT_TERMINAL = 160

EXIT_INTERRUPTED = 130


def show(content: table.Table | str) -> None:
    """Writes a rich table, or text with rich markup, to standard output."""
    output = console.Console(highlight=False)
    if not output.is_terminal:
        output.width = max(output.width, _WIDTH_WITHOUT_TERMINAL)
    output.print(content)


def show_progress(text: str) -> None:
    """Writes a line about the progress of long work to standard error."""
    console.Console(stderr=True, highlight=False).print(text)


def show_interrupted() -> None:
    """Writes to standard error that the user interrupted the command."""
    click.echo("tfx-perf: interrupted", err=True)


def show_json(value: Any) -> None:
    """Writes `value` to standard output as JSON, for `--json`."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
