"""Nodes that Ctrl-C or SIGTERM ends in a local run are marked as failed in ML Metadata.

TFX itself marks those that raise an `Exception`; others would stand there as running for ever.
"""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.dsl.compiler import constants
from tfx.orchestration.portable import data_types, launcher
from tfx.orchestration.portable.mlmd import execution_lib

from tfx_perf import interception

_RUN = constants.PIPELINE_RUN_CONTEXT_TYPE_NAME

_LOGGER = logging.getLogger(__name__)

_Launch = Callable[[launcher.Launcher], data_types.ExecutionInfo | None]


@contextlib.contextmanager
def recorded() -> Iterator[None]:
    """Marks, while the context lasts, nodes of this process that Ctrl-C or SIGTERM ends.

    SIGTERM interrupts as Ctrl-C does, so that what runs is ended first; then it takes effect.
    """
    with _terminable(), interception.replacing(launcher.Launcher, "launch", _recording):
        yield


def mark_as_failed(
    store: metadata_store.MetadataStore, executions: Iterable[mlmd.Execution]
) -> None:
    """Marks executions that are still running, though nobody runs them.

    Args:
        store: ML Metadata.
        executions: in any state.
    """
    cut_off = [each for each in executions if execution_lib.is_execution_active(each)]
    for execution in cut_off:
        execution.last_known_state = mlmd.Execution.FAILED
    if cut_off:
        store.put_executions(cut_off)


def _recording(own: _Launch) -> _Launch:
    """Returns what stands in the place of the launcher's method."""

    def launch(node: launcher.Launcher) -> data_types.ExecutionInfo | None:
        try:
            return own(node)
        except Exception:  # which `own` has recorded
            raise
        except BaseException:
            try:
                _mark_run(node)
            except Exception:  # what has come is to be seen
                _LOGGER.warning("ML Metadata was not told of the interruption.", exc_info=True)
            raise

    return launch


def _mark_run(node: launcher.Launcher) -> None:
    """Marks what has begun in a node's run, which ends with this process."""
    contexts = node._pipeline_node.contexts.contexts
    (run,) = (each.name.field_value.string_value for each in contexts if each.type.name == _RUN)
    with node._mlmd_connection as connection:
        store = connection.store
        context = store.get_context_by_type_and_name(_RUN, run)
        if context is not None:
            mark_as_failed(store, store.get_executions_by_context(context.id))


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Has SIGTERM interrupt the context, and take effect behind it; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    has_come = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal has_come
        has_come = True
        signal.default_int_handler(number, frame)

    # None: the handler was not installed from Python and cannot be put back.
    before = signal.signal(signal.SIGTERM, interrupt) or signal.SIG_DFL
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if has_come:
            signal.raise_signal(signal.SIGTERM)
