"""Shows which node of a local run is at work, instead of TFX's log."""

import contextlib
import logging
import pathlib
import re
import sys
import time
from collections.abc import Iterator

from absl import logging as absl_logging

# What LocalDagRunner ("Component") and BeamDagRunner ("node") log for every node.
_NODE_LINE = re.compile(r"(?:Component|node) (\S+) is (running|finished)\.")


class _NodeHandler(logging.Handler):
    """Writes a line to standard error for each node that has finished; passes errors on."""

    def __init__(self) -> None:
        super().__init__()
        self._started: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            logging.getLogger().handle(record)
            return
        found = _NODE_LINE.match(record.getMessage())
        if found is None:
            return
        node, event = found.groups()
        if event == "running":
            self._started[node] = time.monotonic()
        else:
            seconds = time.monotonic() - self._started.pop(node, time.monotonic())
            print(f"  {node:<24}{seconds:7.1f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def shown(log_path: pathlib.Path) -> Iterator[None]:
    """Shows on standard error, while the context lasts, the nodes that finish in this process.

    Args:
        log_path: TFX's log goes into this file, of which the terminal shows only the errors.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    logger = absl_logging.get_absl_logger()
    level, propagates = logger.level, logger.propagate
    to_file = logging.FileHandler(log_path, mode="w", encoding="utf-8")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handlers = (to_file, _NodeHandler())
    for handler in handlers:
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
        to_file.close()
        logger.setLevel(level)
        logger.propagate = propagates
