"""Threads of workers that have failed, which ends no worker; their tracebacks are in its log."""

import pathlib
import re
from collections.abc import Sequence

from tfx_perf import workers

# How `threading.excepthook` begins.
_FAILED = re.compile(r"Exception in thread (.+):$")


def notes(log_folder: pathlib.Path, *, names: Sequence[str]) -> tuple[str, ...]:
    """Returns what there is to say of each worker with such threads, without a full stop.

    Args:
        log_folder: with the workers' logs.
        names: of the workers.
    """
    return tuple(
        f"threads of {name} have failed ({', '.join(sorted(threads))}); see {path}"
        for name in names
        if (threads := _failed_in(path := log_folder / workers.log_file(name)))
    )


def _failed_in(path: pathlib.Path) -> set[str]:
    with path.open(encoding="utf-8", errors="replace") as log:
        return {found[1] for line in log if (found := _FAILED.match(line))}
