"""Runs one node of a pipeline that was deployed to Airflow, in the environment of TFX.

`python -m tfx_perf.pipelines.airflow.run_node` takes its values from the environment, so that
neither a shell nor a template language reads them. Exit codes: 0; 1 for a node that failed; 2 for
a user error; 99 for a node that was skipped.
"""

import dataclasses
import json
import os
import pathlib
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import launcher, runtime_parameter_utils
from tfx.orchestration.portable.mlmd import execution_lib
from tfx.proto.orchestration import pipeline_pb2

# TFX makes up a class for a type that was not imported, which cannot be sent to a child process.
from tfx_perf.components import early_imports, types  # noqa: F401
from tfx_perf.core import errors
from tfx_perf.pipelines import parameters, progress
from tfx_perf.pipelines.airflow import topology

_FAILED = 1
_USER_ERROR = 2
_SKIPPED = 99

# TFX's name, which its module keeps private.
_RESULT = "__execution_result__"

_ATTEMPT = "tfx_perf.attempt"
_NODE = constants.NODE_CONTEXT_TYPE_NAME
_RUN = constants.PIPELINE_RUN_CONTEXT_TYPE_NAME


class TerminatedError(Exception):
    """SIGTERM was received; an exception, so that the launcher records a failed execution."""


def main() -> None:
    """Runs the node that the environment names, see `dag.py`, and ends the process."""
    logging.set_verbosity(logging.INFO)
    signal.signal(signal.SIGTERM, _terminate)
    pipeline, node, run_id, values = (
        os.environ[f"TFX_PERF_{name}"] for name in ("PIPELINE", "NODE", "RUN_ID", "PARAMETERS")
    )
    try:
        note = run_node(pipeline, node, run_id=run_id, values=json.loads(values))
    except errors.UserError as error:
        _end(_USER_ERROR, f"{node} failed: {error}")
    except Exception as error:
        traceback.print_exc()
        _end(_FAILED, f"{node} failed: {error!r}")
    if note is None:
        _end(_SKIPPED, f"{node} was skipped.")
    _end(0, f"note: {note}" if note else "")


def run_node(pipeline: str, node_id: str, *, run_id: str, values: dict[str, Any]) -> str | None:
    """Runs a node and records it in ML Metadata; returns a line on it, None if it was skipped."""
    ir = topology.read(pipeline)
    parameters.bind(ir, values)
    run = {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
    runtime_parameter_utils.substitute_runtime_parameter(ir, run)
    node = _find(ir, node_id)
    early_imports.begin(node.node_info.type.name)  # before ML Metadata starts its threads
    deployment = runner_utils.extract_local_deployment_config(ir)
    connection = _connection(deployment.metadata_connection_config)
    with metadata.Metadata(connection) as handle:
        _begin_attempt(handle.store, node)
    info = launcher.Launcher(
        pipeline_node=node,
        mlmd_connection=metadata.Metadata(connection),
        pipeline_info=ir.pipeline_info,
        pipeline_runtime_spec=ir.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, node_id),
        custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, node_id),
    ).launch()
    if info is None or not info.execution_id:  # a condition was false
        return None
    with metadata.Metadata(connection) as handle:
        (execution,) = handle.store.get_executions_by_id([info.execution_id])
        # Inputs that cannot be resolved are recorded by the launcher, but not raised.
        if execution.last_known_state == mlmd.Execution.FAILED:
            raise RuntimeError(_reason(execution))
        return _note_on(handle.store, execution)


def _find(ir: pipeline_pb2.Pipeline, node_id: str) -> pipeline_pb2.PipelineNode:
    nodes = {node.node_info.id: node for node in topology.nodes_of(ir)}
    if node_id not in nodes:
        raise errors.UserError(
            f"Expected one of the pipeline's nodes: {', '.join(nodes)}. Received: node={node_id}."
        )
    return nodes[node_id]


def _connection(config: Any) -> Any:
    """Returns the connection to ML Metadata; SQLite's folder is created if it does not exist."""
    connection = getattr(config, config.WhichOneof("connection_config"))
    if database := progress.database_of(connection):
        pathlib.Path(database).parent.mkdir(parents=True, exist_ok=True)
    return connection


def _note_on(store: metadata_store.MetadataStore, execution: mlmd.Execution) -> str:
    """Returns in one line: from cache or not, a gate's decision, remarks, the reports' paths."""
    sentences = ["taken from cache"] if execution.last_known_state == mlmd.Execution.CACHED else []
    outputs = progress.outputs_of(store, execution.id)
    sentences += [
        *progress.decisions(outputs), *progress.remarks(outputs), *progress.reports(outputs)
    ]  # fmt: skip
    return " ".join("; ".join(sentences).split())


def _reason(execution: mlmd.Execution) -> str:
    recorded = json.loads(execution.custom_properties[_RESULT].string_value or "{}")
    lines = recorded.get("resultMessage", "").strip().splitlines()
    return lines[-1] if lines else "the log says why"


@dataclasses.dataclass(frozen=True)
class _Attempt:
    execution: mlmd.Execution
    name: str  # empty: made by another runner


def _begin_attempt(store: metadata_store.MetadataStore, node: pipeline_pb2.PipelineNode) -> None:
    """Prepares a node for the launcher's next attempt, after a retry or a clear.

    The launcher allows one execution per node and run: it would overwrite a failed one, and do
    nothing if one has succeeded. So every attempt is an execution in its own context, and later
    nodes read the outputs of the newest successful one. Attempts that were cut off are marked as
    failed. A cleared node is not taken from cache, because clearing it asks to run it again.
    """
    names = _names(node.contexts.contexts)
    run, name = names[_RUN], names[_NODE]
    attempts = _attempts(store, run=run)
    earlier = attempts.get(name, [])
    progress.mark_as_failed(store, [attempt.execution for attempt in earlier])
    if _newest(earlier):
        node.execution_options.caching_options.enable_cache = False
    context = node.contexts.contexts.add()
    context.type.name = _ATTEMPT
    context.name.field_value.string_value = f"{run}.{name}.{len(earlier) + 1}"
    for spec in node.inputs.inputs.values():
        for channel in spec.channels:
            contexts = _names(channel.context_queries)
            if not {_RUN, _NODE} <= contexts.keys():
                continue  # it does not belong to this run
            made = _newest(attempts.get(contexts[_NODE], []))
            if made and made.name:
                query = channel.context_queries.add()
                query.type.name = _ATTEMPT
                query.name.field_value.string_value = made.name


def _attempts(store: metadata_store.MetadataStore, *, run: str) -> dict[str, list[_Attempt]]:
    """Returns the attempts of a run by the name of the node's context, the oldest first."""
    attempts: dict[str, list[_Attempt]] = {}
    context = store.get_context_by_type_and_name(_RUN, run)
    executions = store.get_executions_by_context(context.id) if context else []
    for execution in sorted(executions, key=lambda item: item.id):
        names = {item.type: item.name for item in store.get_contexts_by_execution(execution.id)}
        attempt = _Attempt(execution, name=names.get(_ATTEMPT, ""))
        attempts.setdefault(names.get(_NODE, ""), []).append(attempt)
    return attempts


def _newest(attempts: Sequence[_Attempt]) -> _Attempt | None:
    has_succeeded = execution_lib.is_execution_successful
    return next((each for each in reversed(attempts) if has_succeeded(each.execution)), None)


def _names(contexts: Iterable) -> dict[str, str]:
    """Returns the names of a node's or a channel's contexts by their types."""
    return {item.type.name: item.name.field_value.string_value for item in contexts}


def _terminate(number: int, frame: Any) -> None:
    raise TerminatedError("Airflow has ended the task.")


def _end(code: int, last_line: str) -> None:
    """Ends the process at once: the exits of TensorFlow and Beam can crash, or print more."""
    sys.stderr.flush()
    print(last_line, flush=True)
    os._exit(code)


if __name__ == "__main__":
    main()
