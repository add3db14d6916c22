"""A Python script of the user's with its arguments, as a subcommand takes them."""

import pathlib
from collections.abc import Callable
from typing import Any

import click

from tfx_perf import errors

# What stands behind the script is the script's, whatever it looks like.
CONTEXT = {"allow_interspersed_args": False}


def arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the arguments `script` and `arguments`, of which a `checked` one is a file."""
    rest: Any = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    return click.argument("script", type=click.Path())(rest(command))


def checked(script: str) -> pathlib.Path:
    """Returns the script's path.

    Raises:
        UserError: it is no file.
    """
    path = pathlib.Path(script)
    if not path.is_file():
        raise errors.UserError(
            f"Expected a Python script. Received: script={script}, which is no file."
        )
    return path
