"""Starts TFX's command line, repaired."""

import sys
from collections.abc import Sequence

import click

from tfx_perf import errors

_EXIT_USER_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `tfx` and ends the process.

    What the user got wrong, as far as tfx-perf finds it, is one line on standard error and
    exit code 2; the rest is TFX's own behaviour.

    Args:
        arguments: what follows `tfx`; None for those of the process.
    """
    # TFX takes some ten seconds to import.
    from tfx.tools.cli import cli_main

    from tfx_perf.cli.repairs import repair

    repair.repair()
    try:
        cli_main.cli_group.main(args=arguments, prog_name="tfx")
    except errors.UserError as error:
        click.echo(f"tfx: {' '.join(str(error).split())}", err=True)
        sys.exit(_EXIT_USER_ERROR)
