"""Shows which node of a local run is at work, instead of TFX's log."""

import contextlib
import logging
import pathlib
import sys
import time
from collections.abc import Iterator

from absl import logging as absl_logging
from tfx.orchestration.portable import launcher

_STATES = {True: "done", False: "failed"}


@contextlib.contextmanager
def shown(log_path: pathlib.Path) -> Iterator[None]:
    """Shows on standard error, while the context lasts, the nodes that end in this process.

    Args:
        log_path: TFX's log goes into this file; of it the terminal shows only the errors.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with _nodes_shown(), _log_into(log_path):
        yield


@contextlib.contextmanager
def _nodes_shown() -> Iterator[None]:
    """Wraps what every runner of compiled pipelines starts a node with."""
    launch = launcher.Launcher.launch

    def timed(node: launcher.Launcher) -> object:
        start, ended = time.monotonic(), False
        try:
            result = launch(node)
            ended = True
            return result
        finally:
            name = node._pipeline_node.node_info.id
            seconds = time.monotonic() - start
            print(f"  {name:<24}{seconds:7.1f} s  {_STATES[ended]}", file=sys.stderr, flush=True)

    launcher.Launcher.launch = timed
    try:
        yield
    finally:
        launcher.Launcher.launch = launch


@contextlib.contextmanager
def _log_into(path: pathlib.Path) -> Iterator[None]:
    logger = absl_logging.get_absl_logger()
    verbosity, propagates = absl_logging.get_verbosity(), logger.propagate
    to_file = logging.FileHandler(path, mode="w", encoding="utf-8")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    to_terminal = logging.StreamHandler()
    to_terminal.setLevel(logging.ERROR)
    for handler in (to_file, to_terminal):
        logger.addHandler(handler)
    absl_logging.set_verbosity(absl_logging.INFO)  # absl would take the logger's level back
    logger.propagate = False
    try:
        yield
    finally:
        for handler in (to_file, to_terminal):
            logger.removeHandler(handler)
        to_file.close()
        absl_logging.set_verbosity(verbosity)
        logger.propagate = propagates
