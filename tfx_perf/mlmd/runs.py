"""Reads runs, their figures and the gate's verdicts back from ML Metadata.

Only the plain `ml_metadata` API is used: ML Metadata 1.21 has no `filter_query` any more. Works on
the records of TFX's IR-based runners (LocalDagRunner, Beam): contexts of the types `pipeline` and
`pipeline_run`, of which the former is the parent.
"""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tfx_perf import mlmd
from tfx_perf.core import errors, formatting, metrics
from tfx_perf.mlmd import store as stores

# The context types of tfx/dsl/compiler/constants.py.
_PIPELINE = "pipeline"
_PIPELINE_RUN = "pipeline_run"
_NODE = "node"

_PREFIX = "tfx_perf."
FIGURE_TYPES = frozenset(
    f"{_PREFIX}{name}" for name in ("InputPlan", "MemoryProfile", "PerfMetrics", "PerfEvaluation")
)
"""The types of artifacts that have figures and a report."""
_EVALUATION_TYPE = "tfx_perf.PerfEvaluation"
_TRAINING_TYPE = "tfx_perf.PerfMetrics"
# Artifact type to the custom property that names the chosen plan, and its display name.
_PLANS = {
    "tfx_perf.InputPlan": ("chosen_candidate", "input plan"),
    _TRAINING_TYPE: ("plan", "training plan"),
}


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """One run of a pipeline, or of one of its gates; `gate.history.read` adds the last fields.

    Attributes:
        created: when the run began, in UTC.
        state: `complete`, `running` or `failed`, from the states of its executions.
        metrics: catalogue key to value, of every artifact the run put out or took from cache.
        blessed: PerfEvaluator's verdict; like `pushed` None if the run did not get that far.
        folders: where tfx-perf's artifacts are, e.g. `{"PerfMetrics": "/…/perf_metrics/7"}`.
        plans: the plans used, e.g. `{"training plan": "50 steps per execution"}`.
        note: what a person decided about the run; it outweighs the gate's verdict.
        node: id of the PerfEvaluator that judged it; empty if none has, or in old ledgers.
        is_cached: whether its training is that of an earlier run, from TFX's cache.
        replaced_runs: number of a script's earlier runs whose figures this run has replaced.
    """

    run_id: str
    pipeline: str
    created: datetime.datetime
    state: str
    metrics: Mapping[str, float]
    blessed: bool | None
    pushed: bool | None
    folders: Mapping[str, str]
    plans: Mapping[str, str] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""
    node: str = ""
    headline: str = ""
    is_cached: bool = False
    replaced_runs: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """A key that is unique among the runs of all pipelines."""
        return self.pipeline, self.node, self.run_id

    @property
    def state_in_words(self) -> str:
        """The state, and whether anything was trained."""
        return f"{self.state}, training from cache" if self.is_cached else self.state

    @property
    def trained_on(self) -> str:
        """The workers or replicas that trained together, e.g. `2 workers`; empty if unknown."""
        if "replica_count" not in self.metrics:
            return ""
        return formatting.together(
            worker_count=int(self.metrics.get("worker_count", 1)),
            replica_count=int(self.metrics["replica_count"]),
            server_count=int(self.environment.get("parameter_server_count", 0)),
        )


def are_several(runs: Iterable[RecordedRun], attribute: str) -> bool:
    """Whether runs are of several pipelines, or nodes; those that reached no gate are of any."""
    return len({getattr(run, attribute) for run in runs} - {""}) > 1


def alike(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Groups runs whose times may be compared, by gate if there are several, and workers."""
    differing = [each for each in ("pipeline", "node") if are_several(runs, each)]
    groups: dict[str, list[RecordedRun]] = {}
    for run in runs:
        parts = [getattr(run, attribute) for attribute in (*differing, "trained_on")]
        groups.setdefault(", ".join(filter(None, parts)), []).append(run)
    return groups


def pipelines(database: str | pathlib.Path) -> list[str]:
    """Returns all pipelines' names, sorted; UserError if the database cannot be opened."""
    store = stores.open_store(str(database))
    return sorted(context.name for context in store.get_contexts_by_type(_PIPELINE))


def read_runs(
    database: str | pathlib.Path, *, pipeline: str | None = None, limit: int | None = None
) -> list[RecordedRun]:
    """Returns runs, newest first, once for each gate; UserError without database or pipeline."""
    store = stores.open_store(str(database))
    known = {context.id: context.name for context in store.get_contexts_by_type(_PIPELINE)}
    if pipeline is not None and pipeline not in known.values():
        raise errors.UserError(
            f"Expected one of the pipelines on record: {', '.join(sorted(known.values()))}. "
            f"Received: pipeline={pipeline}."
        )
    newest_first = sorted(
        store.get_contexts_by_type(_PIPELINE_RUN),
        key=lambda context: (context.create_time_since_epoch, context.id),
        reverse=True,
    )
    # The context's parent is no use: Airflow gives runs of all DAGs the same names, and TFX then
    # uses the context of the first pipeline's run for the others, too.
    executions_of = {
        name: {item.id for item in store.get_executions_by_context(id_)}
        for id_, name in known.items()
        if pipeline in (None, name)
    }
    by_run: list[list[RecordedRun]] = []
    for context in newest_first:
        if limit is not None and len(by_run) >= limit:
            break
        executions = sorted(store.get_executions_by_context(context.id), key=lambda item: item.id)
        for name, ids in executions_of.items():
            if part := [item for item in executions if item.id in ids]:
                runs = _runs(store, context, name, executions=part, database=str(database))
                by_run.append(runs)
    return [run for of_gates in by_run[:limit] for run in of_gates]


def _runs(
    store: mlmd.MetadataStore,
    context: mlmd.proto.Context,
    pipeline: str,
    *,
    executions: Sequence[mlmd.proto.Execution],
    database: str,
) -> list[RecordedRun]:
    """Returns the run; if it has several gates, once for each, with that gate's artifacts."""
    nodes = {execution.id: _node(store, execution) for execution in executions}
    outputs, inputs = outputs_and_inputs(store, list(nodes))
    cached = {
        artifact.id
        for execution in executions
        if execution.last_known_state == mlmd.proto.Execution.CACHED
        for artifact in outputs[execution.id]
    }
    made: dict[str, set[int]] = {}  # by a gate
    given: dict[str, set[int]] = {}
    for execution_id, outputs_of_it in outputs.items():
        if any(artifact.type == _EVALUATION_TYPE for artifact in outputs_of_it):
            gate = nodes[execution_id]
            made.setdefault(gate, set()).update(artifact.id for artifact in outputs_of_it)
            given.setdefault(gate, set()).update(inputs[execution_id])
    parts = {next(iter(made), ""): list(outputs.values())}
    if len(made) > 1:
        parts = {
            gate: [
                # The outputs of a node that reads the gate's belong to it, too: the pushed model.
                outputs_of_it
                if of_gate & inputs[id_]
                else [item for item in outputs_of_it if item.id in of_gate | given[gate]]
                for id_, outputs_of_it in outputs.items()
            ]
            for gate, of_gate in made.items()
        }
    created = datetime.datetime.fromtimestamp(
        context.create_time_since_epoch / 1000, tz=datetime.timezone.utc
    )
    return [
        RecordedRun(
            run_id=context.name,
            pipeline=pipeline,
            node=gate.removeprefix(f"{pipeline}."),
            created=created,
            state=_state(nodes, executions),
            **_results(part, cached=cached, database=database),
        )
        for gate, part in parts.items()
    ]


def _results(
    outputs: Iterable[Sequence[mlmd.proto.Artifact]], *, cached: Collection[int], database: str
) -> dict[str, Any]:
    """Returns the fields of a run that are in its executions' outputs, oldest execution first."""
    figures: dict[str, float] = {}
    fields: dict[str, Any] = {"blessed": None, "pushed": None, "folders": {}, "plans": {}}
    for artifacts in outputs:
        by_type = {artifact.type: artifact for artifact in artifacts}
        for artifact in artifacts:
            if artifact.type in FIGURE_TYPES:
                figures |= _figures(artifact)
                folder = stores.located(artifact.uri, database)
                fields["folders"][artifact.type.removeprefix(_PREFIX)] = folder
            if artifact.type == _TRAINING_TYPE:
                fields["is_cached"] = artifact.id in cached
            key, name = _PLANS.get(artifact.type, ("", ""))
            if key in artifact.custom_properties:
                fields["plans"][name] = artifact.custom_properties[key].string_value
        # An InfraBlessing beside the evaluation is the gate's; InfraValidator makes them too.
        if _EVALUATION_TYPE in by_type:
            properties = by_type[_EVALUATION_TYPE].custom_properties
            fields["headline"] = properties["headline"].string_value
            fields["blessed"] = _flag(by_type.get("InfraBlessing"), "blessed")
        if "PushedModel" in by_type:
            fields["pushed"] = _flag(by_type["PushedModel"], "pushed")
    return {"metrics": figures, **fields}


def outputs_and_inputs(
    store: mlmd.MetadataStore, execution_ids: list[int]
) -> tuple[dict[int, list[mlmd.proto.Artifact]], dict[int, set[int]]]:
    """Returns each execution's outputs and input ids, which a context's artifacts would mix."""
    events = store.get_events_by_execution_ids(execution_ids)
    made = [event for event in events if event.type == mlmd.proto.Event.OUTPUT]
    read = store.get_artifacts_by_id(list({event.artifact_id for event in made}))
    artifacts = {artifact.id: artifact for artifact in read}
    outputs: dict[int, list[mlmd.proto.Artifact]] = {id_: [] for id_ in execution_ids}
    inputs: dict[int, set[int]] = {id_: set() for id_ in execution_ids}
    for event in made:
        outputs[event.execution_id].append(artifacts[event.artifact_id])
    for event in events:
        if event.type == mlmd.proto.Event.INPUT:
            inputs[event.execution_id].add(event.artifact_id)
    return outputs, inputs


def _figures(artifact: mlmd.proto.Artifact) -> dict[str, float]:
    properties = metrics.under_new_names(artifact.custom_properties)
    return {
        key: value.double_value
        for key, value in properties.items()
        if key in metrics.CATALOGUE and value.HasField("double_value")
    }


def _flag(artifact: mlmd.proto.Artifact | None, key: str) -> bool | None:
    if artifact is None or key not in artifact.custom_properties:
        return None
    return bool(artifact.custom_properties[key].int_value)


def _node(store: mlmd.MetadataStore, execution: mlmd.proto.Execution) -> str:
    """Returns `<pipeline>.<node>`; a unique id if the runner does not record it."""
    contexts = store.get_contexts_by_execution(execution.id)
    names = (context.name for context in contexts if context.type == _NODE)
    return next(names, str(execution.id))


def _state(nodes: Mapping[int, str], executions: Sequence[mlmd.proto.Execution]) -> str:
    """Sums up the states of the nodes; for a retried node, that of its last attempt counts."""
    last = {nodes[execution.id]: execution.last_known_state for execution in executions}
    states = set(last.values())
    if states & {mlmd.proto.Execution.FAILED, mlmd.proto.Execution.CANCELED}:
        return "failed"
    is_running = states & {mlmd.proto.Execution.NEW, mlmd.proto.Execution.RUNNING}
    return "running" if is_running else "complete"
