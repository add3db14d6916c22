"""Attempts of a node within one run, which retries and clears make, told apart in ML Metadata.

TFX's launcher knows one execution for a node and run: it would overwrite a failed one, and do
nothing where one has succeeded. Here every attempt is an execution of its own, in a context of
its own, and the nodes after it read what the newest successful attempt made.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.dsl.compiler import constants
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.proto.orchestration import pipeline_pb2

from tfx_perf.pipelines import interrupted

_CONTEXT_TYPE = "tfx_perf.attempt"
_NODE = constants.NODE_CONTEXT_TYPE_NAME
_RUN = constants.PIPELINE_RUN_CONTEXT_TYPE_NAME

_Channel: TypeAlias = pipeline_pb2.InputSpec.Channel


@dataclasses.dataclass(frozen=True)
class _Attempt:
    execution: mlmd.Execution
    name: str  # empty: made by another runner


def begin(store: metadata_store.MetadataStore, node: pipeline_pb2.PipelineNode) -> None:
    """Prepares a node for its next attempt; to be called before the launcher gets it.

    Attempts that were cut off are marked as failed. A node that has succeeded before in this
    run, and was cleared, is not taken from cache: who clears it wants it done again.

    Args:
        store: ML Metadata.
        node: with the run's id in its contexts. It gets a context for the attempt, and reads its
            producers' newest attempts.
    """
    run, name = (_name_in(node.contexts.contexts, kind) for kind in (_RUN, _NODE))
    attempts = _attempts(store, run=run)
    earlier = attempts.get(name, [])
    interrupted.mark_as_failed(store, [attempt.execution for attempt in earlier])
    if _newest(earlier):
        node.execution_options.caching_options.enable_cache = False
    context = node.contexts.contexts.add()
    context.type.name = _CONTEXT_TYPE
    context.name.field_value.string_value = f"{run}.{name}.{len(earlier) + 1}"
    for spec in node.inputs.inputs.values():
        for channel in spec.channels:
            if _is_of_one_run(channel):
                producer = _name_in(channel.context_queries, _NODE)
                _read_only(channel, _newest(attempts.get(producer, [])))


def _attempts(store: metadata_store.MetadataStore, *, run: str) -> dict[str, list[_Attempt]]:
    """Returns the attempts of a run by the name of the node's context, the oldest first."""
    found: dict[str, list[_Attempt]] = {}
    context = store.get_context_by_type_and_name(_RUN, run)
    executions = store.get_executions_by_context(context.id) if context else []
    for execution in sorted(executions, key=lambda item: item.id):
        names = {item.type: item.name for item in store.get_contexts_by_execution(execution.id)}
        attempt = _Attempt(execution, name=names.get(_CONTEXT_TYPE, ""))
        found.setdefault(names.get(_NODE, ""), []).append(attempt)
    return found


def _newest(attempts: Sequence[_Attempt]) -> _Attempt | None:
    """Returns the newest successful attempt."""
    for attempt in reversed(attempts):
        if execution_lib.is_execution_successful(attempt.execution):
            return attempt
    return None


def _is_of_one_run(channel: _Channel) -> bool:
    """Returns whether it reads the run's own artifacts, not those of all runs."""
    return {_RUN, _NODE} <= {query.type.name for query in channel.context_queries}


def _read_only(channel: _Channel, attempt: _Attempt | None) -> None:
    """Lets a channel see nothing but what one attempt made."""
    if attempt and attempt.name:
        query = channel.context_queries.add()
        query.type.name = _CONTEXT_TYPE
        query.name.field_value.string_value = attempt.name


def _name_in(contexts: Iterable, kind: str) -> str:
    """Returns the name of the context, or of the query for a context, of a kind."""
    return next(item.name.field_value.string_value for item in contexts if item.type.name == kind)
