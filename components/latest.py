"""Artifacts of earlier runs from ML Metadata, and the failures among those runs."""

import collections
import math
from typing import Any

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx import types as tfx_types
from tfx import v1 as tfx
from tfx.dsl.compiler import constants
from tfx.dsl.components.base import base_driver
from tfx.orchestration import metadata
from tfx.orchestration.portable import base_driver as portable_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2
from tfx.types import artifact

from tfx_perf.components import artifacts, types
from tfx_perf.components.types import Artifacts
from tfx_perf.gate import ledger_store
from tfx_perf.mlmd import runs

FAILED_BEFORE = "failed_before"
"""Execution property: how many executions on the same inputs have found nothing, if any have."""

_RUNS = 10


class LatestStrategy(tfx.dsl.experimental.ResolverStrategy):
    """Resolves the newest artifacts, and nothing if there are none yet.

    TFX's LatestArtifactStrategy would record a failed execution on a pipeline's first run.

    With a source (e.g. the examples), it resolves only artifacts that are older than the first one
    made from the same source. The input then changes only with the source, so that TFX's cache
    serves an unchanged run. Later decisions of people are resolved in any case.
    """

    def __init__(self, count: int = 1, source: str = "", run_label: str = "") -> None:
        """Resolves at most `count` artifacts per key, newest last; `source` is a key, or empty.

        Artifacts of executions whose `run_label` differs from that of the component that will read
        them are resolved even if the source is the same.
        """
        self._count = count
        self._source = source
        self._run_label = run_label

    def resolve_artifacts(self, store: Any, input_dict: Artifacts) -> Artifacts:
        """Returns the newest artifacts for each key."""
        resolved = {**input_dict}
        for key in input_dict.keys() - {self._source}:
            items = input_dict[key]
            if self._source and items:
                items = self._before(store, items, source=input_dict[self._source])
            resolved[key] = sorted(items, key=lambda item: item.id)[-self._count :]
        return resolved

    def _before(
        self, store: Any, items: list[artifact.Artifact], *, source: list[artifact.Artifact]
    ) -> list[artifact.Artifact]:
        made: dict[int, set[int]] = collections.defaultdict(set)
        for event in store.get_events_by_artifact_ids([item.id for item in items]):
            if event.type == mlmd.Event.OUTPUT:
                made[event.execution_id].add(event.artifact_id)
        read: dict[int, set[int]] = collections.defaultdict(set)
        for event in store.get_events_by_execution_ids(list(made)) if made else ():
            is_source = any(step.key == self._source for step in event.path.steps)
            if event.type == mlmd.Event.INPUT and is_source:
                read[event.execution_id].add(event.artifact_id)
        first_id, decided_ids = math.inf, set()
        source_ids = {each.id for each in source}
        for execution in store.get_executions_by_id(list(made)):
            label = execution.custom_properties["run_label"].string_value
            if execution.type == ledger_store.EXECUTION_TYPE:  # a decision of a person
                decided_ids |= made[execution.id]
            elif label == self._run_label and read.get(execution.id) == source_ids:
                first_id = min(first_id, *made[execution.id])
        return [item for item in items if item.id < first_id or item.id in decided_ids]


def latest_ledger(perf_metrics: tfx_types.BaseChannel | None = None) -> tfx.dsl.Resolver:
    """Returns the node whose output `ledger` goes into PerfEvaluator.

    It resolves the last ledgers, which PerfEvaluator merges: two concurrent runs lack each
    other's entries.

    Args:
        perf_metrics: PerfEvaluator's input. Pass it in a pipeline with caching: the verdict on a
            cached training then comes from the cache, too, and nothing is pushed again.

    Example:
        ```python
        ledger = latest_ledger(trainer.outputs["perf_metrics"])
        gate = PerfEvaluator(..., ledger=ledger.outputs["ledger"])
        ```
    """
    ledger = tfx.dsl.Channel(type=types.PerfLedger)
    return _resolver("perf_metrics", perf_metrics, ledger=ledger).with_id("latest_perf_ledger")


def latest_plans(examples: tfx_types.BaseChannel | None = None) -> tfx.dsl.Resolver:
    """Returns the node whose output `previous_plans` goes into InputTuner.

    Args:
        examples: InputTuner's input. Pass it in a pipeline with caching, so that an unchanged
            InputTuner is still taken from cache (see `LatestStrategy`). Without it, the plans of
            all earlier runs are resolved, including those for the same artifacts.

    Example:
        ```python
        plans = latest_plans(transform.outputs["transformed_examples"])
        input_tuner = InputTuner(..., previous_plans=plans.outputs["previous_plans"])
        ```
    """
    plans = tfx.dsl.Channel(type=types.InputPlan)
    return _resolver("examples", examples, previous_plans=plans).with_id("latest_input_plans")


def latest_metrics(
    examples: tfx_types.BaseChannel | None = None, *, run_label: str | None = None
) -> tfx.dsl.Resolver:
    """Returns the node whose output `previous_metrics` goes into OptimizedTrainer.

    Args:
        examples: OptimizedTrainer's input; as for `latest_plans`.
        run_label: OptimizedTrainer's label. With a new label it trains again, and may then reuse
            the plan of the previous label even though the examples are the same.

    Example:
        ```python
        metrics = latest_metrics(transform.outputs["transformed_examples"])
        trainer = OptimizedTrainer(..., previous_metrics=metrics.outputs["previous_metrics"])
        ```
    """
    metrics = tfx.dsl.Channel(type=types.PerfMetrics)
    resolver = _resolver("examples", examples, run_label=run_label, previous_metrics=metrics)
    return resolver.with_id("latest_perf_metrics")


def _resolver(
    source_key: str,
    source: tfx_types.BaseChannel | None,
    *,
    run_label: str | None = None,
    **channels: tfx_types.BaseChannel,
) -> tfx.dsl.Resolver:
    config: dict[str, Any] = {"count": _RUNS}
    if source is not None:
        config |= {"source": source_key, "run_label": run_label or ""}  # TFX cannot compile None
        channels = {source_key: source, **channels}
    return tfx.dsl.Resolver(strategy_class=LatestStrategy, config=config, **channels)


class FailedBeforeDriver(base_driver.BaseDriver, portable_driver.BaseDriver):
    """Adds the number of a node's failures on the same inputs to the node's properties.

    Our nodes succeed even if one of their processes was killed, hung or timed out, and TFX reuses
    a successful execution from its cache if inputs and properties are the same. The changed number
    keeps the cache from serving such an execution; it serves the next one that finds a result.
    """

    def __init__(self, connection: metadata.Metadata) -> None:
        portable_driver.BaseDriver.__init__(self, connection)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """Returns the number of failures as a property, unless it is 0."""
        with self._mlmd_connection as connection:
            count = _failures(connection.store, execution_info)
        output = driver_output_pb2.DriverOutput()
        if count:
            output.exec_properties[FAILED_BEFORE].int_value = count
        return output


def _failures(store: metadata_store.MetadataStore, execution_info: data_types.ExecutionInfo) -> int:
    """Returns how many of the node's outputs from the same inputs have `MAY_PASS`."""
    node = f"{execution_info.pipeline_info.id}.{execution_info.pipeline_node.node_info.id}"
    context = store.get_context_by_type_and_name(constants.NODE_CONTEXT_TYPE_NAME, node)
    if context is None:
        return 0
    input_ids = {item.id for items in execution_info.input_dict.values() for item in items}
    ids = [execution.id for execution in store.get_executions_by_context(context.id)]
    outputs, inputs = runs.outputs_and_inputs(store, ids)
    # By id: what was taken from cache is the output of several executions.
    made = {item.id: item for id_ in ids if inputs[id_] == input_ids for item in outputs[id_]}
    return sum(artifacts.MAY_PASS in item.custom_properties for item in made.values())
