"""Starts TFX's command line, repaired."""

import sys
from collections.abc import Sequence

import click

from tfx_perf import errors

_EXIT_USER_ERROR = 2
_FAILED_RUN = "Error while running"


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
    except SystemExit as error:
        # So TFX says what the user got wrong; a run that failed is not among it.
        if isinstance(error.code, str) and not error.code.startswith(_FAILED_RUN):
            click.echo(f"tfx: {error.code.strip()}", err=True)
            sys.exit(_EXIT_USER_ERROR)
        raise
