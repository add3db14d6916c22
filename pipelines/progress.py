"""Shows which node of a local run is at work, instead of TFX's log."""

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from absl import logging as absl_logging
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx import v1 as tfx
from tfx.components.util import udf_utils
from tfx.orchestration.portable import data_types, launcher

from tfx_perf import console, periodic
from tfx_perf.pipelines import remarks

_FAILED = "failed"
_SKIPPED = "skipped"  # its condition was false
_CACHED = "from cache"
_STATES = {mlmd.Execution.CACHED: _CACHED, mlmd.Execution.FAILED: _FAILED}
_DONE = "done"
# They have no executor, and look again in every run.
_WITHOUT_CACHE = {tfx.dsl.Importer.get_class_type(), tfx.dsl.Resolver.get_class_type()}
_NOTHING_NEW = (
    "Nothing has changed: all nodes are from TFX's cache, and found then what follows. To train "
    "anew: another run_label of OptimizedTrainer; in our templates --label NAME."
)


@dataclasses.dataclass(frozen=True)
class NodeRun:
    """How a node ended.

    Attributes:
        name: its id.
        state: `done`, `from cache`, `skipped` or `failed`.
        seconds: how long it took.
        found: of our components what they found, what to do about it, and the report, in lines.
    """

    name: str
    state: str
    seconds: float
    found: Sequence[str] = ()


@contextlib.contextmanager
def shown(
    terminal: TextIO,
    *,
    pulse_seconds: float = console.STATUS_SECONDS,
    longest_pulse_seconds: float = console.LONGEST_STATUS_SECONDS,
) -> Iterator[Sequence[NodeRun]]:
    """Shows, while the context lasts, the nodes that end in this process.

    A node that takes long says now and then what it is doing. At the end stands what our
    components found, from cache or not: the plans, the gate's decision and what to do about it,
    what went wrong though a node succeeded, and the reports. TFX logs what it does meanwhile;
    `console.libraries` keeps that, and what the nodes print, in a file.

    Args:
        terminal: where a line is written for each node.
        pulse_seconds: time to the first line of a node that is still at work, and between two in
            which it does something else.
        longest_pulse_seconds: to which the time between two others grows.

    Yields:
        The nodes that have ended, which become more.
    """
    verbosity = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.INFO)
    launch = launcher.Launcher.launch
    package = udf_utils.package_user_module_file
    nodes = _Nodes(
        terminal, pulse_seconds=pulse_seconds, longest_pulse_seconds=longest_pulse_seconds
    )

    def watched(node: launcher.Launcher) -> object:
        with nodes.watched(node) as watch:
            watch.result = launch(node)
        return watch.result

    def packaged(*arguments: str) -> tuple[str, str]:
        with console.output_to_error():  # setuptools says what it copies
            return package(*arguments)

    # What makes a wheel of a `module_file`, before the first node.
    udf_utils.package_user_module_file = packaged
    # What every runner of compiled pipelines starts a node with.
    launcher.Launcher.launch = watched
    try:
        with console.status_watched() as nodes.activity:
            yield nodes.ended
    finally:
        udf_utils.package_user_module_file = package
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
        ended: the nodes that have ended.
    """

    activity: Callable[[], str]
    ended: list[NodeRun]

    def __init__(
        self, terminal: TextIO, *, pulse_seconds: float, longest_pulse_seconds: float
    ) -> None:
        self._terminal = terminal
        self._pulse_seconds, self._longest_pulse_seconds = pulse_seconds, longest_pulse_seconds
        self.ended = []
        self._has_cached = self._has_news = False

    @contextlib.contextmanager
    def watched(self, node: launcher.Launcher) -> Iterator[_Watch]:
        """Says how the node ended when the context does."""
        name, began, watch = node._pipeline_node.node_info.id, time.monotonic(), _Watch()
        state, decisions, found = _FAILED, [], []

        def say(what: str) -> None:
            self._say(f"  {name:<24}{time.monotonic() - began:7.1f} s  {what}")

        node_pulse = console.StatusLines(
            say, seconds=self._pulse_seconds, longest_seconds=self._longest_pulse_seconds
        )
        try:
            console.set_status("")
            pulses = periodic.calling(
                lambda: node_pulse(self.activity()), seconds=self._pulse_seconds
            )
            # Keras' progress bar is on standard output.
            with pulses, console.output_to_error():
                yield watch
            if getattr(watch.result, "execution_id", None) is None:
                state = _SKIPPED
            else:
                state, made = _outcome(node, watch.result)
                found = list(_closing(name, made, database=_database(node)))
                # The rest of it stands at the end.
                decided = (*remarks.decisions(made), *remarks.pushes(made))
                decisions = [re.split("[:.]", each)[0] for each in decided]
        finally:
            say(state)
            for decision in decisions:
                self._say(f"    {decision}")
            self.ended.append(NodeRun(name, state, time.monotonic() - began, found))
            may_cache = node._pipeline_node.node_info.type.name not in _WITHOUT_CACHE
            self._has_cached |= state == _CACHED
            self._has_news |= state != _CACHED and (may_cache or state != _DONE)

    def close(self) -> None:
        """Says what was found, which the nodes after it have moved out of sight."""
        if self._has_cached and not self._has_news:
            self._say(_NOTHING_NEW)
        for line in (line for node in self.ended for line in node.found):
            self._say(line)

    def _say(self, line: str) -> None:
        print(line, file=self._terminal, flush=True)


def _outcome(
    node: launcher.Launcher, result: data_types.ExecutionInfo
) -> tuple[str, Sequence[mlmd.Artifact]]:
    """Returns how a node ended, and what it has put out."""
    with node._mlmd_connection as connection:
        (execution,) = connection.store.get_executions_by_id([result.execution_id])
        made = remarks.outputs_of(connection.store, result.execution_id)
    return _STATES.get(execution.last_known_state, _DONE), made


def _database(node: launcher.Launcher) -> str:
    """Returns the path of ML Metadata's SQLite file; empty if ML Metadata is on a server."""
    connection = node._mlmd_connection._connection_config
    is_server = not isinstance(connection, mlmd.ConnectionConfig)
    return "" if is_server else connection.sqlite.filename_uri


def _closing(name: str, made: Sequence[mlmd.Artifact], *, database: str) -> Iterator[str]:
    """Yields what there is to say of a node at the end: what it found, remarks, reports."""
    found = [*remarks.outcome(made, database=database)]
    found = found or [*remarks.decisions(made), *remarks.pushes(made)]
    headline = " ".join(found[:1])
    said = [remark for remark in remarks.remarks(made) if remark not in headline]
    if found or said:
        yield f"{name}: {headline}".rstrip()
        yield from found[1:]
        yield from (f"  remark: {remark}" for remark in said)
        yield from (f"  {report}" for report in remarks.reports(made))
