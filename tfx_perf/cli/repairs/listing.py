"""How TFX's command lists pipelines."""

from collections.abc import Sequence

import click

_LINE = "-" * 30


def show_pipelines(names: Sequence[str]) -> None:
    """Prints the names of pipelines, or that there are none."""
    if not names:
        click.echo("No pipelines to display.")
        return
    click.echo("\n".join([_LINE, *names, _LINE]))
