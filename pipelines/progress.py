"""The nodes of a local run: shown as they end instead of TFX's log, and recorded if interrupted."""

import contextlib
import dataclasses
import functools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from absl import logging as absl_logging
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.components.evaluator import constants as evaluator_constants
from tfx.components.util import udf_utils
from tfx.dsl.compiler import constants
from tfx.dsl.components.common import importer, resolver
from tfx.orchestration.portable import data_types, launcher
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.types import standard_artifacts

from tfx_perf.components import artifacts, types
from tfx_perf.core import console, errors, interception, periodic, storage
from tfx_perf.gate import decision as gate_record
from tfx_perf.gate import messages
from tfx_perf.isolate.termination import Termination
from tfx_perf.report import page as report_page

_FAILED = "failed"
_SKIPPED = "skipped"  # its condition was false
_CACHED = "from cache"
_STATES = {mlmd.Execution.CACHED: _CACHED, mlmd.Execution.FAILED: _FAILED}
_DONE = "done"
_RUN = constants.PIPELINE_RUN_CONTEXT_TYPE_NAME
# They have no executor, and look for artifacts again in every run.
_WITHOUT_CACHE = {importer.Importer.get_class_type(), resolver.Resolver.get_class_type()}
_NOTHING_NEW = (
    "Nothing has changed: all nodes are from TFX's cache, with the findings below. To train again, "
    "use another run_label of OptimizedTrainer; in our templates --label NAME."
)
_LOGGER = logging.getLogger(__name__)

_Launch = Callable[[launcher.Launcher], data_types.ExecutionInfo | None]


@dataclasses.dataclass(frozen=True)
class NodeRun:
    """The end of a node, with the state `done`, `from cache`, `skipped` or `failed`.

    `found` has lines on our components' results: findings, what to do about them, the report.
    """

    name: str
    state: str
    seconds: float
    found: Sequence[str] = ()


@contextlib.contextmanager
def shown(terminal: TextIO) -> Iterator[Sequence[NodeRun]]:
    """Shows nodes of this process as they end, within the context; yields their growing list.

    Each node has a line on `terminal`; a long-running one also shows its status from time to time.
    Our components' results come at the end, from cache or not. `console.libraries` keeps TFX's log
    and the nodes' output in a file.
    """
    with contextlib.ExitStack() as until:
        until.callback(absl_logging.set_verbosity, absl_logging.get_verbosity())
        absl_logging.set_verbosity(absl_logging.INFO)
        # One for all nodes: a change of the environment would restart their children's server.
        status = until.enter_context(console.status_watched())
        view = _View(terminal, status=status)
        until.callback(view.close)
        replacements = (
            # Every runner of compiled pipelines starts a node with this.
            (launcher.Launcher, "launch", view.launching),
            # This makes a wheel of a `module_file`, before the first node.
            (udf_utils, "package_user_module_file", _with_output_to_error),
        )
        with interception.replacing_all(replacements):
            yield view.ended


def _with_output_to_error(package: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(package)
    def packaged(*arguments: str) -> object:
        with console.output_to_error():  # setuptools says what it copies
            return package(*arguments)

    return packaged


class _View:
    """Writes a line for each node, and its results; `ended` has the nodes that have ended."""

    def __init__(self, terminal: TextIO, *, status: Callable[[], str]) -> None:
        self.ended: list[NodeRun] = []
        self._terminal, self._status = terminal, status
        self._has_cached = self._has_news = False

    def launching(self, launch: _Launch) -> _Launch:
        def launching(node: launcher.Launcher) -> data_types.ExecutionInfo | None:
            name, began = node._pipeline_node.node_info.id, time.monotonic()
            state, decisions, closing_lines = _FAILED, [], []

            def say(what: str) -> None:
                self._say(f"  {name:<24}{time.monotonic() - began:7.1f} s  {what}")

            lines = console.StatusLines(say)
            console.set_status("")
            try:
                with (
                    periodic.calling(lambda: lines(self._status()), seconds=console.STATUS_SECONDS),
                    console.output_to_error(),  # Keras' progress bar
                ):
                    result = launch(node)
                if getattr(result, "execution_id", None) is None:
                    state = _SKIPPED
                else:
                    state, made = _outcome(node, result)
                    title = f"{name} (from cache)" if state == _CACHED else name
                    database = database_of(node._mlmd_connection._connection_config)
                    closing_lines = list(_closing(title, made, database=database))
                    # The rest of the decision is shown at the end.
                    decisions = [re.split("[:.]", line)[0] for line in _decided(made)]
                return result
            finally:
                say(state)
                for decision in decisions:
                    self._say(f"    {decision}")
                self.ended.append(NodeRun(name, state, time.monotonic() - began, closing_lines))
                may_cache = node._pipeline_node.node_info.type.name not in _WITHOUT_CACHE
                self._has_cached |= state == _CACHED
                self._has_news |= state != _CACHED and (may_cache or state != _DONE)

        return launching

    def close(self) -> None:
        """Shows the results, which output of later nodes would have moved out of sight."""
        if self._has_cached and not self._has_news:
            self._say(_NOTHING_NEW)
        for line in (line for node in self.ended for line in node.found):
            self._say(line)

    def _say(self, line: str) -> None:
        print(line, file=self._terminal, flush=True)


def _outcome(
    node: launcher.Launcher, result: data_types.ExecutionInfo
) -> tuple[str, Sequence[mlmd.Artifact]]:
    with node._mlmd_connection as connection:
        (execution,) = connection.store.get_executions_by_id([result.execution_id])
        made = outputs_of(connection.store, result.execution_id)
    return _STATES.get(execution.last_known_state, _DONE), made


def database_of(connection: Any) -> str:
    """Returns the path of ML Metadata's SQLite file; empty for a server (it has a password)."""
    is_server = not isinstance(connection, mlmd.ConnectionConfig)
    return "" if is_server else connection.sqlite.filename_uri


def _closing(title: str, made: Sequence[mlmd.Artifact], *, database: str) -> Iterator[str]:
    lines = _outcome_lines(made, database=database) or [*_decided(made)]
    headline = " ".join(lines[:1])
    others = [each.removeprefix(headline).strip() for each in remarks(made) if each not in headline]
    if lines or others:
        yield f"{title}: {headline}".rstrip()
        yield from lines[1:]
        yield from (f"  remark: {remark}" for remark in others)
        yield from (f"  {report}" for report in reports(made))


def _outcome_lines(outputs: Iterable[mlmd.Artifact], *, database: str) -> Sequence[str]:
    """Returns our component's headline, with PerfEvaluator's figures and advice; else nothing."""
    for artifact in outputs:
        headline = artifact.custom_properties[artifacts.HEADLINE].string_value
        if artifact.type == types.PerfEvaluation.TYPE_NAME:
            try:
                file = storage.path(artifact.uri) / gate_record.FILE_NAME
                decision = gate_record.GateRecord.read(file)
                return list(messages.lines(decision, database=database))
            except errors.UserError:  # removed, or of another version
                return [headline]
        if headline:
            return [headline]
    return []


def outputs_of(store: metadata_store.MetadataStore, execution_id: int) -> list[mlmd.Artifact]:
    """Returns the outputs of an execution, without those that a resolver passes on."""
    ids = [
        event.artifact_id
        for event in store.get_events_by_execution_ids([execution_id])
        if event.type == mlmd.Event.OUTPUT
    ]
    return store.get_artifacts_by_id(ids)


def decisions(outputs: Iterable[mlmd.Artifact]) -> Iterator[str]:
    """Yields e.g. `blessed: 15 of 17 checks ...` or `REFUSED by 2 of 17 checks ...`."""
    for artifact in outputs:
        properties = artifact.custom_properties
        blessing = properties[evaluator_constants.ARTIFACT_PROPERTY_BLESSED_KEY]
        if blessing.HasField("int_value"):  # ExampleAnomalies has a text of that name
            key = evaluator_constants.ARTIFACT_PROPERTY_BLESSING_MESSAGE_KEY
            message = properties[key].string_value
            verdict = "blessed" if blessing.int_value else "REFUSED"
            if message.lower().startswith(verdict.lower()):  # PerfEvaluator's includes the verdict
                yield verdict + message[len(verdict) :]
            else:
                yield f"{verdict}: {message}" if message else verdict


def _decided(outputs: Sequence[mlmd.Artifact]) -> Iterator[str]:
    yield from decisions(outputs)
    for artifact in outputs:
        if artifact.type == standard_artifacts.PushedModel.TYPE_NAME:
            pushed = artifact.custom_properties["pushed"].int_value
            yield "pushed" if pushed else "pushed nothing: a blessing is missing"


def remarks(outputs: Iterable[mlmd.Artifact]) -> Iterator[str]:
    """Yields a line on each problem in our components that did not fail the node."""
    for artifact in outputs:
        if remark := artifact.custom_properties[artifacts.REMARK].string_value:
            yield remark


def reports(outputs: Iterable[mlmd.Artifact]) -> Iterator[str]:
    """Yields the paths of the reports."""
    for artifact in outputs:
        page = os.path.join(artifact.uri, report_page.FILE_NAME)
        # Other components' artifacts may be in a store that we cannot read.
        with contextlib.suppress(errors.UserError):
            if storage.exists(page):
                yield f"report: {page}"


@contextlib.contextmanager
def interruptions_recorded() -> Iterator[None]:
    """Marks nodes of this process that Ctrl-C or SIGTERM ends as failed, while the context lasts.

    TFX itself marks only nodes that raise an `Exception`; others would remain recorded as running
    in ML Metadata. SIGTERM takes effect after the node has ended.
    """
    with (
        Termination(interrupts=True),
        interception.replacing(launcher.Launcher, "launch", _recording),
    ):
        yield


def mark_as_failed(
    store: metadata_store.MetadataStore, executions: Iterable[mlmd.Execution]
) -> None:
    """Marks executions as failed that are recorded as running, although no process runs them."""
    cut_off = [each for each in executions if execution_lib.is_execution_active(each)]
    for execution in cut_off:
        execution.last_known_state = mlmd.Execution.FAILED
    if cut_off:
        store.put_executions(cut_off)


def _recording(launch: _Launch) -> _Launch:
    def recording(node: launcher.Launcher) -> data_types.ExecutionInfo | None:
        try:
            return launch(node)
        except Exception:  # TFX has recorded it
            raise
        except BaseException:
            try:
                _mark_run(node)
            except Exception:  # must not hide the interruption
                _LOGGER.warning("The interruption was not recorded in ML Metadata.", exc_info=True)
            raise

    return recording


def _mark_run(node: launcher.Launcher) -> None:
    """Marks the executions of a node's run that are left when this process ends."""
    contexts = node._pipeline_node.contexts.contexts
    (run,) = (each.name.field_value.string_value for each in contexts if each.type.name == _RUN)
    with node._mlmd_connection as connection:
        store = connection.store
        context = store.get_context_by_type_and_name(_RUN, run)
        if context is not None:
            mark_as_failed(store, store.get_executions_by_context(context.id))
