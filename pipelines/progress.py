"""Shows which node of a local run is at work, instead of TFX's log."""

import contextlib
import time
from collections.abc import Iterator
from typing import TextIO

from absl import logging as absl_logging
from tfx.orchestration.portable import launcher

from tfx_perf.pipelines import remarks

_STATES = {True: "done", False: "failed"}


@contextlib.contextmanager
def shown(terminal: TextIO) -> Iterator[None]:
    """Shows, while the context lasts, the nodes that end in this process.

    TFX logs what it does meanwhile; `quiet.libraries` keeps that, and the rest, in a file.

    Args:
        terminal: where a line is written for each node.
    """
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.INFO)
    try:
        with _nodes_shown(terminal):
            yield
    finally:
        absl_logging.set_verbosity(verbosity)


@contextlib.contextmanager
def _nodes_shown(terminal: TextIO) -> Iterator[None]:
    """Wraps what every runner of compiled pipelines starts a node with."""
    launch = launcher.Launcher.launch

    def timed(node: launcher.Launcher) -> object:
        start, ended, said = time.monotonic(), False, []
        try:
            result = launch(node)
            ended, said = True, _decision(node, result)
            return result
        finally:
            name = node._pipeline_node.node_info.id
            seconds = time.monotonic() - start
            print(f"  {name:<24}{seconds:7.1f} s  {_STATES[ended]}", file=terminal, flush=True)
            for line in said:
                print(f"    {line}", file=terminal, flush=True)

    launcher.Launcher.launch = timed
    try:
        yield
    finally:
        launcher.Launcher.launch = launch


def _decision(node: launcher.Launcher, execution: object) -> list[str]:
    """Returns what a gate has decided and where its report is; nothing of other nodes."""
    execution_id = getattr(execution, "execution_id", None)
    if execution_id is None:  # taken from cache
        return []
    with node._mlmd_connection as connection:
        made = remarks.outputs_of(connection.store, execution_id)
    decided = list(remarks.decisions(made))
    return [*decided, *remarks.reports(made)] if decided else []
