"""A Python script of the user's with its arguments, as a subcommand takes them."""

import pathlib
import re
from collections.abc import Callable
from typing import Any

import click

from tfx_perf import errors

_WHOSE = (
    "Options stand before SCRIPT. What stands behind it is the script's own, as with `python "
    "SCRIPT`: also an option that this command has, too."
)


class Command(click.Command):
    """A subcommand that takes a script: what stands behind that is the script's own.

    An option of the subcommand may not stand there, whatever it looks like.
    """

    allow_interspersed_args = False

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        """Has the help say whose the options are.

        Args:
            *arguments: of click.
            **settings: likewise.
        """
        super().__init__(*arguments, **settings)
        self.epilog = _WHOSE

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Returns what is left of the arguments.

        Raises:
            UserError: an option that is needed stands behind the script.
        """
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            names = error.param.opts if error.param else []
            misplaced = [each for each in given if each.partition("=")[0] in names]
            if not misplaced:
                raise
            raise errors.UserError(
                f"Expected {misplaced[0]} before the script: what stands behind it is the "
                f"script's own. Received: {' '.join(given)}."
            ) from error


def arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the arguments `script` and `arguments`, of which a `checked` one is a file."""
    rest: Any = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    return click.argument("script", type=click.Path())(rest(command))


def checked(script: str) -> pathlib.Path:
    """Returns the script's path.

    Raises:
        UserError: it is no file, or Python itself.
    """
    path = pathlib.Path(script)
    if re.fullmatch(r"python[\d.]*", path.name):
        raise errors.UserError(
            f"Expected a Python script. Received: script={script}. Leave the interpreter out: this "
            "command runs the script with its own."
        )
    if not path.is_file():
        raise errors.UserError(
            f"Expected a Python script. Received: script={script}, which is no file."
        )
    return path
