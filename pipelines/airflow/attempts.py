"""Attempts of a node within one run, which retries and clears make, told apart in ML Metadata.

TFX's launcher knows one execution for a node and run: it would overwrite a failed one, and do
nothing where one has succeeded. Here every attempt is an execution of its own, in a context of
its own, and the nodes after it read what the newest successful attempt made.
"""

import dataclasses
from collections.abc import Iterable

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.dsl.compiler import constants
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.proto.orchestration import pipeline_pb2

_CONTEXT_TYPE = "tfx_perf.attempt"


@dataclasses.dataclass(frozen=True)
class _Attempt:
    execution: mlmd.Execution
    node: str
    name: str | None  # None: made by another runner


class Attempts:
    """The attempts of all nodes in one run.

    Args:
        store: ML Metadata.
        node: any node of the pipeline, with the run's id in its contexts.

    Example:
        >>> attempts = Attempts(store, node)
        >>> missing = attempts.missing_producers(node)
        >>> attempts.begin(node)  # before the launcher gets it
    """

    def __init__(self, store: metadata_store.MetadataStore, node: pipeline_pb2.PipelineNode):
        """Reads the run's executions."""
        self._store = store
        run = _name_in(node.contexts.contexts, constants.PIPELINE_RUN_CONTEXT_TYPE_NAME)
        context = store.get_context_by_type_and_name(constants.PIPELINE_RUN_CONTEXT_TYPE_NAME, run)
        executions = store.get_executions_by_context(context.id) if context else []
        self._attempts: dict[str, list[_Attempt]] = {}
        for execution in sorted(executions, key=lambda item: item.id):
            contexts = store.get_contexts_by_execution(execution.id)
            names = {context.type: context.name for context in contexts}
            name = names.get(constants.NODE_CONTEXT_TYPE_NAME, "")
            attempt = _Attempt(execution, node=name, name=names.get(_CONTEXT_TYPE))
            self._attempts.setdefault(name, []).append(attempt)

    def missing_producers(self, node: pipeline_pb2.PipelineNode) -> list[str]:
        """Returns the nodes that made none of what this one requires: they were skipped."""
        return [
            channel.producer_node_query.id
            for spec in node.inputs.inputs.values()
            if spec.min_count > 0
            for channel in spec.channels
            if _is_of_one_run(channel) and self._newest(_producer(channel)) is None
        ]

    def begin(self, node: pipeline_pb2.PipelineNode) -> None:
        """Prepares a node for its next attempt.

        Attempts that were cut off are marked as failed. A node that has succeeded before, and
        was cleared, is not taken from cache: who clears it wants it done again.

        Args:
            node: gets a context for the attempt, and reads its producers' newest attempts.
        """
        name = _name_in(node.contexts.contexts, constants.NODE_CONTEXT_TYPE_NAME)
        run = _name_in(node.contexts.contexts, constants.PIPELINE_RUN_CONTEXT_TYPE_NAME)
        earlier = self._attempts.get(name, [])
        self._end([item.execution for item in earlier])
        if self._newest(name):
            node.execution_options.caching_options.enable_cache = False
        context = node.contexts.contexts.add()
        context.type.name = _CONTEXT_TYPE
        context.name.field_value.string_value = f"{run}.{name}.{len(earlier) + 1}"
        for spec in node.inputs.inputs.values():
            for channel in spec.channels:
                newest = self._newest(_producer(channel)) if _is_of_one_run(channel) else None
                if newest and newest.name:
                    query = channel.context_queries.add()
                    query.type.name = _CONTEXT_TYPE
                    query.name.field_value.string_value = newest.name

    def _newest(self, node: str) -> _Attempt | None:
        """Returns the newest successful attempt of a node."""
        for attempt in reversed(self._attempts.get(node, [])):
            if execution_lib.is_execution_successful(attempt.execution):
                return attempt
        return None

    def _end(self, executions: Iterable[mlmd.Execution]) -> None:
        cut_off = [item for item in executions if execution_lib.is_execution_active(item)]
        for execution in cut_off:
            execution.last_known_state = mlmd.Execution.FAILED
        if cut_off:
            self._store.put_executions(cut_off)


_Channel = pipeline_pb2.InputSpec.Channel


def _is_of_one_run(channel: _Channel) -> bool:
    """Returns whether it reads the run's own artifacts, not those of all runs."""
    kinds = {query.type.name for query in channel.context_queries}
    return {
        constants.PIPELINE_RUN_CONTEXT_TYPE_NAME,
        constants.NODE_CONTEXT_TYPE_NAME,
    } <= kinds


def _producer(channel: _Channel) -> str:
    return _name_in(channel.context_queries, constants.NODE_CONTEXT_TYPE_NAME)


def _name_in(contexts: Iterable, kind: str) -> str:
    """Returns the name of the context, or of the query for a context, of a kind."""
    return next(item.name.field_value.string_value for item in contexts if item.type.name == kind)
