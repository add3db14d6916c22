"""`tfx-perf tfx`: TFX's command line, repaired; and the script `tfx` that starts it.

Two packages with scripts of the same name overwrite each other. So tfx-perf's script is written on
demand, and falls back to TFX's own if tfx-perf has been uninstalled.
"""

import pathlib
import sys
from collections.abc import Sequence

import click

from tfx_perf.core import console, errors, storage

_MODULE = "tfx_perf.cli.tfx"
_TFX = "tfx.tools.cli.cli_main"

_REPAIRED = f"""\
# `tfx-perf tfx --restore` puts TFX's own script back.
import sys

try:
    from {_MODULE} import main
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("tfx_perf"):
        raise
    from {_TFX} import cli_group as main
sys.exit(main())
"""
_OWN = f"""\
import sys

from {_TFX} import cli_group

sys.exit(cli_group())
"""


@click.command(
    "tfx", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--install", is_flag=True, help="Make `tfx` itself do what this does.")
@click.option("--restore", is_flag=True, help="Make `tfx` TFX's own again.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(*, install: bool, restore: bool, arguments: tuple[str, ...]) -> None:
    """Runs TFX's command line with what is broken in it repaired.

    Takes what `tfx` takes, e.g. `tfx-perf tfx pipeline create --engine airflow ...`.
    """
    if install or restore:
        if arguments or (install and restore):
            raise click.UsageError("Use --install or --restore alone.")
        written = write_script(repaired=install)
        click.echo(f"{written}: {'repaired' if install else 'TFX own'}")
        return
    main(list(arguments))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `tfx` and ends the process; a user error is one line and exit code 2."""
    # TFX takes about ten seconds to import, while other libraries print a lot.
    with console.libraries():
        from tfx.tools.cli import cli_main

        from tfx_perf.cli.tfx_repair import repair

        repair.repair()
    try:
        cli_main.cli_group.main(args=arguments, prog_name="tfx")
    except errors.UserError as error:
        console.tell_error(str(error), program="tfx")
        sys.exit(console.EXIT_USER_ERROR)
    except SystemExit as error:
        # TFX reports user errors this way, and also failed runs, which are something else.
        if isinstance(error.code, str) and not error.code.startswith("Error while running"):
            console.tell_error(error.code, program="tfx")
            sys.exit(console.EXIT_USER_ERROR)
        raise


def is_repaired() -> bool:
    """Whether the script `tfx` starts the repaired command line."""
    script = _script()
    return script.is_file() and _MODULE in script.read_text(encoding="utf-8")


def write_script(*, repaired: bool) -> pathlib.Path:
    """Makes `tfx` the repaired command line, or TFX's own again, and returns the script."""
    script = _script()
    try:
        header = _header(script.read_text(encoding="utf-8"))
        storage.write_text(script, header + (_REPAIRED if repaired else _OWN))
    except OSError as error:
        raise errors.UserError(
            f"Expected TFX's script, which can be written. Received: {script} ({error.strerror})."
        ) from error
    return script


def _script() -> pathlib.Path:
    return pathlib.Path(sys.executable).with_name("tfx")


def _header(text: str) -> str:
    """Returns the lines that start the interpreter: one, or three if its path is long."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[:3] if lines[0].startswith("#!/bin/sh") else lines[:1])
