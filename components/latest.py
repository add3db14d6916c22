"""Finds what the runs before have left in ML Metadata."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx import types as tfx_types
from tfx import v1 as tfx
from tfx.types import artifact

from tfx_perf.components import types
from tfx_perf.gate import ledger_artifacts

_RUNS = 10

_Inputs = dict[str, list[artifact.Artifact]]


class LatestStrategy(tfx.dsl.experimental.ResolverStrategy):
    """Resolves the newest artifacts, and to nothing where there are none yet.

    TFX's LatestArtifactStrategy would record a failed execution on a pipeline's first run.
    """

    def __init__(self, count: int = 1) -> None:
        """Resolves at most `count` artifacts for each key, the newest last."""
        self._count = count

    def resolve_artifacts(self, store: Any, input_dict: _Inputs) -> _Inputs:
        """Returns the newest artifacts for each key."""
        del store
        return {
            key: sorted(candidates, key=lambda candidate: candidate.id)[-self._count :]
            for key, candidates in input_dict.items()
        }


class BeforeStrategy(LatestStrategy):
    """Resolves the newest artifacts that are older than the first one for the same source.

    An input that changes with each run would keep TFX's cache from ever answering. This
    one changes only with the source, e.g. the examples: when they are used a second time, the
    artifacts are those of the first time, so that an unchanged run is taken from cache, plan and
    all. What a person has decided since is resolved all the same.
    """

    def __init__(
        self, count: int, run_label: str | None = None, source: str = "examples"
    ) -> None:
        """Resolves at most `count` artifacts for each key, the newest last.

        Args:
            count: how many.
            run_label: of the component that will read them; executions with another label are
                not its own, so that what they made is resolved.
            source: key of the source.
        """
        super().__init__(count)
        self._run_label = run_label
        self._source = source

    def resolve_artifacts(self, store: Any, input_dict: _Inputs) -> _Inputs:
        """Returns the newest artifacts for each key but the source, and that as it is.

        Args:
            store: ML Metadata.
            input_dict: artifacts of runs before, and the source that is to be used now.
        """
        source = input_dict[self._source]
        ids = {item.id for item in source}
        older = {}
        for key, candidates in input_dict.items():
            if key != self._source:
                makers = _makers(store, candidates)
                made_from = _made_from(
                    store, makers, ids, source=self._source, run_label=self._run_label
                )
                first_id = min(made_from, default=None)
                decided = _decided(makers)
                older[key] = [
                    item
                    for item in candidates
                    if first_id is None or item.id < first_id or item.id in decided
                ]
        return {self._source: source, **super().resolve_artifacts(store, older)}


_Makers = list[tuple[metadata_store_pb2.Execution, set[int]]]


def _makers(store: Any, items: Sequence[artifact.Artifact]) -> _Makers:
    """Returns the executions that put out the items, each with their ids."""
    made_by: dict[int, set[int]] = {}
    for event in store.get_events_by_artifact_ids([item.id for item in items]) if items else ():
        if event.type == metadata_store_pb2.Event.OUTPUT:
            made_by.setdefault(event.execution_id, set()).add(event.artifact_id)
    return [
        (execution, made_by[execution.id])
        for execution in store.get_executions_by_id(list(made_by))
    ]


def _made_from(
    store: Any, makers: _Makers, source_ids: set[int], *, source: str, run_label: str | None
) -> set[int]:
    """Returns the ids of what executions with that label made from a source.

    From all of it: of a window that moves on, the next one has the most in common with it.
    """
    of_this_label = {
        execution.id: made
        for execution, made in makers
        if execution.custom_properties["run_label"].string_value == (run_label or "")
    }
    if not of_this_label:
        return set()
    read: dict[int, set[int]] = collections.defaultdict(set)
    for event in store.get_events_by_execution_ids(list(of_this_label)):
        if event.type == metadata_store_pb2.Event.INPUT and _is_of(event, source):
            read[event.execution_id].add(event.artifact_id)
    return {
        item_id
        for execution_id, ids in read.items()
        if ids == source_ids
        for item_id in of_this_label[execution_id]
    }


def _is_of(event: metadata_store_pb2.Event, key: str) -> bool:
    """Whether an event is about the input of that key."""
    return any(step.key == key for step in event.path.steps)


def _decided(makers: _Makers) -> set[int]:
    """Returns the ids of ledgers with which people have said something."""
    return {
        item_id
        for execution, made in makers
        if execution.type == ledger_artifacts.EXECUTION_TYPE
        for item_id in made
    }


def latest_ledger(perf_metrics: tfx_types.BaseChannel | None = None) -> tfx.dsl.Resolver:
    """Returns the node whose output `ledger` goes into PerfEvaluator.

    It resolves the last ledgers, which PerfEvaluator merges: of two runs at the same time
    neither has the other's entry.

    Args:
        perf_metrics: what PerfEvaluator gets. Give it in a pipeline with caching, so that the
            verdict on a training that comes from cache does, too, and nothing is pushed again.

    Example:
        ```python
        ledger = latest_ledger(trainer.outputs["perf_metrics"])
        gate = PerfEvaluator(..., ledger=ledger.outputs["ledger"])
        ```
    """
    ledger = tfx.dsl.Channel(type=types.PerfLedger)
    return _before({"perf_metrics": perf_metrics}, ledger=ledger).with_id("latest_perf_ledger")


def latest_plans(examples: tfx_types.BaseChannel | None = None) -> tfx.dsl.Resolver:
    """Returns the node whose output `previous_plans` goes into InputTuner.

    Args:
        examples: what InputTuner gets. Give it in a pipeline with caching, so that an unchanged
            InputTuner is still taken from cache (see `BeforeStrategy`). Without it, the
            plans of all runs before are resolved, also those for the very same artifacts.

    Example:
        ```python
        plans = latest_plans(transform.outputs["transformed_examples"])
        input_tuner = InputTuner(..., previous_plans=plans.outputs["previous_plans"])
        ```
    """
    plans = tfx.dsl.Channel(type=types.InputPlan)
    return _before({"examples": examples}, previous_plans=plans).with_id("latest_input_plans")


def latest_metrics(
    examples: tfx_types.BaseChannel | None = None, *, run_label: str | None = None
) -> tfx.dsl.Resolver:
    """Returns the node whose output `previous_metrics` goes into OptimizedTrainer.

    Args:
        examples: what OptimizedTrainer gets; as for `latest_plans`.
        run_label: what OptimizedTrainer gets. With a new label it trains anew, and may then use
            the plan of the label before, though the examples are the same.

    Example:
        ```python
        metrics = latest_metrics(transform.outputs["transformed_examples"])
        trainer = OptimizedTrainer(..., previous_metrics=metrics.outputs["previous_metrics"])
        ```
    """
    metrics = tfx.dsl.Channel(type=types.PerfMetrics)
    resolver = _before({"examples": examples}, run_label=run_label, previous_metrics=metrics)
    return resolver.with_id("latest_perf_metrics")


def _before(
    source: Mapping[str, tfx_types.BaseChannel | None],
    *,
    run_label: str | None = None,
    **channels: tfx_types.BaseChannel,
) -> tfx.dsl.Resolver:
    ((name, channel),) = source.items()
    if channel is None:
        return tfx.dsl.Resolver(
            strategy_class=LatestStrategy, config={"count": _RUNS}, **channels
        )
    return tfx.dsl.Resolver(
        strategy_class=BeforeStrategy,
        # TFX compiles no None.
        config={"count": _RUNS, "run_label": run_label or "", "source": name},
        **source,
        **channels,
    )
