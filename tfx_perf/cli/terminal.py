"""How the subcommands write to the terminal."""

import json
from typing import Any, TextIO

import click
from rich import box, table
from rich.console import Console
from rich.status import Status


def show(content: table.Table | str) -> None:
    """Writes a rich table, or text with rich markup, to standard output."""
    output = Console(highlight=False)
    if not output.is_terminal:
        # Pipes and files have no width; narrow tables there would cut off figures.
        output.width = max(output.width, 160)
    output.print(content)


def figures_table(title: str, *headings: str) -> table.Table:
    """Returns a table without rows yet: names on the left, and figures below their headings."""
    rows = table.Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    rows.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        rows.add_column(heading, justify="right", no_wrap=True)
    return rows


def working(text: str, *, file: TextIO | None = None) -> Status:
    """Shows a spinner on a terminal while the context lasts."""
    return Console(file=file, stderr=file is None).status(text)


def show_json(value: Any) -> None:
    """Writes `value` to standard output as JSON, for `--json`."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
