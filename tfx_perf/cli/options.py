"""Parts of subcommands: groups, whole numbers, and the user's pipelines and scripts."""

import importlib
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import click

from tfx_perf.core import errors

_WHOSE = (
    "Options come before SCRIPT. Everything after it belongs to the script, as with `python "
    "SCRIPT`."
)


class Group(click.Group):
    """A group whose help has each subcommand's whole first sentence, which click would cut off."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Shows the help if no arguments are given, which click treats as an error."""
        return super().parse_args(ctx, args or ["--help"])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the subcommands, in as many lines as they need."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, each.get_short_help_str(sys.maxsize)) for name, each in commands if each]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class WholeNumber(click.IntRange):
    """A whole number within limits, whose error is worded like all errors of tfx-perf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number, if it is one within the limits."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            least = "" if self.min is None else f" of at least {self.min}"
            limits = least if self.max is None else f" from {self.min or 0} to {self.max}"
            name = max(param.opts, key=len) if param else "value"
            raise errors.UserError(
                f"Expected a whole number{limits}. Received: {name}={value}."
            ) from error


def load_pipeline(reference: str, folder: pathlib.Path) -> Any:
    """Returns the TFX pipeline that `MODULE:NAME` refers to: a Pipeline, or a function's."""
    module_name, _, name = reference.partition(":")
    sys.path.insert(0, str(folder))
    try:
        attribute = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise errors.UserError(
            "Expected MODULE:NAME of a pipeline, e.g. my_project.pipeline:create_pipeline, "
            f"importable in {folder}. Received: {reference} ({error})."
        ) from error
    from tfx import v1 as tfx

    made = attribute() if callable(attribute) else attribute
    if not isinstance(made, tfx.dsl.Pipeline):
        raise errors.UserError(
            "Expected a Pipeline, or a function without arguments that returns one. "
            f"Received: {reference}, which gives a {type(made).__name__}."
        )
    return made


class ScriptCommand(click.Command):
    """A subcommand that takes a script; all arguments after that are the script's own."""

    allow_interspersed_args = False

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.epilog = _WHOSE

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Returns the rest of the arguments; refuses a required option after the script."""
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            names = error.param.opts if error.param else []
            misplaced = [each for each in given if each.partition("=")[0] in names]
            if not misplaced:
                raise
            raise errors.UserError(
                f"Expected {misplaced[0]} before the script: everything after it belongs "
                f"to the script. Received: {' '.join(given)}."
            ) from error


def script_arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the arguments `script`, to be passed to `checked_script`, and `arguments`."""
    rest: Any = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    return click.argument("script", type=click.Path())(rest(command))


def checked_script(script: str) -> pathlib.Path:
    """Returns the path of a script that is a file, and not Python itself."""
    path = pathlib.Path(script)
    if re.fullmatch(r"python[\d.]*", path.name):
        raise errors.UserError(
            f"Expected a Python script. Received: script={script}. Leave the interpreter out: this "
            "command runs the script with its own."
        )
    if not path.is_file():
        raise errors.UserError(
            f"Expected a Python script. Received: script={script}, which is not a file."
        )
    return path
