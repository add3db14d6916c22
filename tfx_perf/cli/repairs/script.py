"""The script `tfx` of this environment: TFX's own, or the one that starts it repaired.

Two packages that bring a script of one name overwrite each other in whatever order they are
installed. So tfx-perf brings none: it is written when asked for, and falls back to TFX's own
where tfx-perf is gone.
"""

import pathlib
import sys

from tfx_perf import errors, storage

_MODULE = "tfx_perf.cli.repairs.entry"
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


def path() -> pathlib.Path:
    """Returns the path of the script in this interpreter's environment."""
    return pathlib.Path(sys.executable).with_name("tfx")


def is_repaired() -> bool:
    """Returns whether `tfx` starts the repaired command line."""
    return path().is_file() and _MODULE in path().read_text(encoding="utf-8")


def install() -> pathlib.Path:
    """Makes `tfx` the repaired command line and returns the script.

    Raises:
        UserError: there is no such script, or it cannot be written.
    """
    return _write(_REPAIRED)


def restore() -> pathlib.Path:
    """Makes `tfx` TFX's own again and returns the script.

    Raises:
        UserError: there is no such script, or it cannot be written.
    """
    return _write(_OWN)


def _write(body: str) -> pathlib.Path:
    script = path()
    try:
        header = _header(script.read_text(encoding="utf-8"))
        storage.write_text(script, header + body)
    except OSError as error:
        raise errors.UserError(
            f"Expected TFX's script, which can be written. Received: {script} ({error.strerror})."
        ) from error
    return script


def _header(text: str) -> str:
    """Returns the lines that start the interpreter: one, or three where its path is long."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[:3] if lines[0].startswith("#!/bin/sh") else lines[:1])
