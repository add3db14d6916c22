"""Entry point of `tfx-perf`; only running subcommands import TensorFlow, so `--help` is quick."""

import importlib
import os
import sys

import click

from tfx_perf import core
from tfx_perf.cli import options
from tfx_perf.core import console, errors
from tfx_perf.hardware import versions

SUBCOMMANDS = (
    "addon", "airflow", "bless", "calibrate", "compare", "demo", "doctor",
    "history", "kubeflow", "launch", "revoke", "run", "template", "tfx",
)  # fmt: skip


class _LazyGroup(options.Group):
    """Imports a subcommand's module when the subcommand is looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in ("revoke", "unbless"):  # its earlier name
            return importlib.import_module("tfx_perf.cli.bless").revoke
        if cmd_name not in SUBCOMMANDS:
            return None
        return importlib.import_module(f"tfx_perf.cli.{cmd_name}").command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(core.VERSION, message="%(prog)s %(version)s")
def cli() -> None:
    """Makes TFX training fast, proves it, and stops regressions."""


def main() -> None:
    """Runs the command line and ends the process; a user error is one line and exit code 2."""
    # ML Metadata's C++ code also writes an error of its own beside the one it raises.
    os.environ.setdefault("GLOG_minloglevel", "3")
    try:
        code = cli.main(prog_name="tfx-perf", standalone_mode=False)
    except (click.ClickException, errors.UserError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        if isinstance(error, click.UsageError) and error.ctx:
            text += f" See {error.ctx.command_path} --help."
        console.tell_error(text, program="tfx-perf")
        code = console.EXIT_USER_ERROR
    except ImportError as error:
        if versions.has_tfx():
            raise
        needs = "Expected TFX, which this command needs"
        missing = f"no package {error.name}" if error.name else str(error).rstrip(".")
        text = f"{needs}. Received: {missing}. {errors.INSTALL_TFX}"
        console.tell_error(text, program="tfx-perf")
        code = console.EXIT_USER_ERROR
    except (click.Abort, KeyboardInterrupt):
        console.tell_error("interrupted", program="tfx-perf")
        code = console.EXIT_INTERRUPTED
    sys.exit(code)
