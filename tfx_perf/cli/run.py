"""`tfx-perf run`: runs a script that runs a pipeline, with readable output on the terminal."""

import contextlib
import dataclasses
import os
import pathlib
import runpy
import sys
import traceback

import click

from tfx_perf.cli import options, terminal
from tfx_perf.config import PerfConfig, yaml_file
from tfx_perf.core import console, errors

_FAILED = 1
_SETTINGS = "perf.yaml"  # as the templates name it


@click.command("run", cls=options.ScriptCommand)
@click.option("--log", "log_path", metavar="FILE", help="By default its name with .tfx-perf.log.")
@click.option("--json", "as_json", is_flag=True, help="The nodes and what they found as JSON.")
@options.script_arguments
@click.pass_context
def command(
    ctx: click.Context,
    *,
    script: str,
    arguments: tuple[str, ...],
    log_path: str | None,
    as_json: bool,
) -> None:
    """Runs SCRIPT, which runs a TFX pipeline in its own process, e.g. local_runner.py.

    The terminal shows a line for each node, and at the end what tfx-perf's components found:
    the plans, whether the gate has blessed the run, why not, and what to do. What TFX,
    TensorFlow and others log goes into a file. The script and its ARGUMENTS stay as they are. The
    exit code is 1 if the pipeline fails, 2 if the script runs none; a refusal is a result, not
    a failure. If the script itself refuses, e.g. an argument, its own words and exit code follow.
    """
    path = options.checked_script(script)
    log = pathlib.Path(log_path or path.with_suffix(".tfx-perf.log").name).absolute()
    if log.exists() and log.samefile(path):
        raise errors.UserError(f"Expected a log file other than the script. Received: log={log}.")
    # As `python SCRIPT` sets them.
    sys.argv, sys.path[0] = [script, *arguments], os.path.abspath(path.parent)
    _check_settings(path.with_name(_SETTINGS))
    console.end_without_collection()
    code, failure = 0, ""
    with console.libraries(log) as shown:
        print("Loading TFX", file=shown, flush=True)
        with terminal.working("Loading TFX", file=shown):
            from tfx_perf.pipelines import progress

        with (
            contextlib.ExitStack() as output,
            progress.interruptions_recorded(),
            progress.shown(shown) as nodes,
        ):
            if as_json:  # output of the script or its processes must not get into it
                output.enter_context(console.output_to_error())
                output.enter_context(contextlib.redirect_stdout(shown))
            code, failure = _run(script, log)
    if not (nodes or code):
        failure = "it has run no pipeline in this process. For Keras scripts, see docs/keras.md."
        code = console.EXIT_USER_ERROR
    if as_json:
        ended = [dataclasses.asdict(node) for node in nodes]
        terminal.show_json({"nodes": ended, "failure": failure or None, "log": str(log)})
    if failure:
        click.echo(f"tfx-perf: {script} failed: {failure}", err=True)
    click.echo(f"Log: {log}", err=True)
    ctx.exit(code)


def _check_settings(path: pathlib.Path) -> None:
    """Checks a project's settings, if they have our outer key, before TFX's slow import."""
    if not path.is_file():
        return
    values = yaml_file.read(path).values
    if isinstance(values, dict) and PerfConfig.ROOT_KEY in values:
        PerfConfig.from_yaml(path)


def _run(script: str, log: pathlib.Path) -> tuple[int, str]:
    """Runs a script as the main module, with standard error in a log.

    Returns its exit code and its failure, which is empty if there was none or it is unknown.
    """
    try:
        runpy.run_path(script, run_name="__main__")
    except errors.UserError:
        raise
    except KeyboardInterrupt:
        return console.EXIT_INTERRUPTED, "interrupted."
    except SystemExit as error:  # as Python treats it
        if error.code is None or isinstance(error.code, int):
            return error.code or 0, _complaint(script, log) if error.code else ""
        return _FAILED, str(error.code)
    except Exception as error:
        traceback.print_exc()  # into the log
        if str(error).startswith(KeyboardInterrupt.__name__):  # Beam turns it into an error
            return console.EXIT_INTERRUPTED, "interrupted."
        return _FAILED, f"{errors.in_one_line(error).rstrip('.')}. The log has the traceback."
    return 0, ""


def _complaint(script: str, log: pathlib.Path) -> str:
    """Returns the last line of a log that begins with a script's name, as `argparse` writes it."""
    sys.stderr.flush()
    if not log.is_file():  # e.g. a terminal, which has shown the line
        return ""
    name = os.path.basename(script)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if line.startswith((f"{name}: ", f"{name} "))]
    return errors[-1].removeprefix(name).lstrip(": ").removeprefix("error: ") if errors else ""
