"""Shows which node of a local run is at work, instead of TFX's log."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from absl import logging as absl_logging
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.orchestration.portable import data_types, launcher

from tfx_perf import activity, periodic
from tfx_perf.pipelines import remarks

PULSE = "..."
"""What follows the time in the lines of a node that is still at work."""

_FAILED = "failed"
_SKIPPED = "skipped"  # its condition was false
_STATES = {mlmd.Execution.CACHED: "from cache", mlmd.Execution.FAILED: _FAILED}
_DONE = "done"


@contextlib.contextmanager
def shown(terminal: TextIO, *, pulse_seconds: float = 30.0) -> Iterator[None]:
    """Shows, while the context lasts, the nodes that end in this process.

    A node that takes long says now and then what it is doing. What went wrong in nodes that
    succeeded is said under them, and once more at the end. TFX logs what it does meanwhile;
    `quiet.libraries` keeps that, and the rest, in a file.

    Args:
        terminal: where a line is written for each node.
        pulse_seconds: time between two lines of a node that is still at work.
    """
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.INFO)
    launch = launcher.Launcher.launch
    nodes = _Nodes(terminal, pulse_seconds=pulse_seconds)

    def watched(node: launcher.Launcher) -> object:
        with nodes.watched(node) as watch:
            watch.result = launch(node)
        return watch.result

    # What every runner of compiled pipelines starts a node with.
    launcher.Launcher.launch = watched
    try:
        with activity.watched() as nodes.activity:
            yield
    finally:
        launcher.Launcher.launch = launch
        absl_logging.set_verbosity(verbosity)
        nodes.close()


class _Watch:
    """A node at work.

    Attributes:
        result: what its launcher returns; None before that.
    """

    result: data_types.ExecutionInfo | None = None


class _Nodes:
    """Writes a line for each node, and what there is to say of it.

    Attributes:
        activity: returns what the node at work has said last.
    """

    activity: Callable[[], str]

    def __init__(self, terminal: TextIO, *, pulse_seconds: float) -> None:
        self._terminal = terminal
        self._pulse_seconds = pulse_seconds
        self._remarks: list[str] = []

    @contextlib.contextmanager
    def watched(self, node: launcher.Launcher) -> Iterator[_Watch]:
        """Says how the node ended when the context does."""
        name, began, watch = node._pipeline_node.node_info.id, time.monotonic(), _Watch()
        state, said = _FAILED, []

        def line(what: str) -> str:
            return f"  {name:<24}{time.monotonic() - began:7.1f} s  {what}"

        try:
            activity.say("")
            with periodic.calling(
                lambda: self._say(line(f"{PULSE} {self.activity() or 'at work'}")),
                seconds=self._pulse_seconds,
            ):
                yield watch
            state, said = self._outcome(node, watch.result)
        finally:
            self._say(line(state))
            for each in said:
                self._say(f"    {each}")

    def close(self) -> None:
        """Says the remarks again, which the nodes after them have moved out of sight."""
        for line in self._remarks:
            self._say(line)

    def _outcome(
        self, node: launcher.Launcher, result: data_types.ExecutionInfo | None
    ) -> tuple[str, list[str]]:
        """Returns how a node ended, and a gate's decision, remarks and where their reports are."""
        execution_id = getattr(result, "execution_id", None)
        if execution_id is None:
            return _SKIPPED, []
        with node._mlmd_connection as connection:
            (execution,) = connection.store.get_executions_by_id([execution_id])
            made = remarks.outputs_of(connection.store, execution_id)
        state = _STATES.get(execution.last_known_state, _DONE)
        found = list(remarks.remarks(made))
        name = node._pipeline_node.node_info.id
        self._remarks += [f"Remark on {name}: {remark}" for remark in found]
        said = [*remarks.decisions(made), *(f"remark: {remark}" for remark in found)]
        return state, [*said, *remarks.reports(made)] if said else []

    def _say(self, line: str) -> None:
        print(line, file=self._terminal, flush=True)
