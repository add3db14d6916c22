"""Starts TFX's command line, repaired."""

import sys
from collections.abc import Sequence

from tfx_perf import console, errors

_FAILED_RUN = "Error while running"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `tfx` and ends the process.

    What the user got wrong, as far as tfx-perf finds it, is one line on standard error and
    exit code 2; the rest is TFX's own behaviour.

    Args:
        arguments: what follows `tfx`; None for those of the process.
    """
    # TFX takes some ten seconds to import, and others have much to say meanwhile.
    with console.libraries():
        from tfx.tools.cli import cli_main

        from tfx_perf.cli.repairs import repair

        repair.repair()
    try:
        cli_main.cli_group.main(args=arguments, prog_name="tfx")
    except errors.UserError as error:
        console.tell_error(str(error), program="tfx")
        sys.exit(console.EXIT_USER_ERROR)
    except SystemExit as error:
        # So TFX says what the user got wrong; a run that failed is not among it.
        if isinstance(error.code, str) and not error.code.startswith(_FAILED_RUN):
            console.tell_error(error.code, program="tfx")
            sys.exit(console.EXIT_USER_ERROR)
        raise
