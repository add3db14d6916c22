"""Finds what the runs before have left in ML Metadata."""

from collections.abc import Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx import types as tfx_types
from tfx import v1 as tfx
from tfx.types import artifact

from tfx_perf.components import types

_PLANS = 10

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


class PlansBeforeStrategy(LatestStrategy):
    """Resolves the newest plans that are older than the first one for the same examples.

    An input that changes with each run would keep TFX's cache from ever answering. This
    one changes only with the examples: when they are tuned a second time, the plans are
    those of the first time, so that an unchanged run is taken from cache, plan and all.
    """

    def resolve_artifacts(self, store: Any, input_dict: _Inputs) -> _Inputs:
        """Returns the newest of the plans under `previous_plans`, and the `examples` as they are.

        Args:
            store: ML Metadata.
            input_dict: `previous_plans`, and the `examples` that are to be tuned now.
        """
        examples, plans = input_dict["examples"], input_dict["previous_plans"]
        of_these = _made_from(store, plans, {item.id for item in examples})
        first_id = min(of_these, default=None)
        older = [plan for plan in plans if first_id is None or plan.id < first_id]
        resolved = super().resolve_artifacts(store, {"previous_plans": older})
        return {"examples": examples, **resolved}


def _made_from(store: Any, plans: Sequence[artifact.Artifact], source_ids: set[int]) -> set[int]:
    """Returns the ids of those plans that an execution made from one of the sources."""
    kinds = metadata_store_pb2.Event
    made_by: dict[int, set[int]] = {}
    for event in store.get_events_by_artifact_ids([plan.id for plan in plans]) if plans else ():
        if event.type == kinds.OUTPUT:
            made_by.setdefault(event.execution_id, set()).add(event.artifact_id)
    if not made_by:
        return set()
    return {
        plan_id
        for event in store.get_events_by_execution_ids(list(made_by))
        if event.type == kinds.INPUT and event.artifact_id in source_ids
        for plan_id in made_by[event.execution_id]
    }


def latest_ledger() -> tfx.dsl.Resolver:
    """Returns the node whose output `ledger` goes into PerfEvaluator.

    Example:
        ```python
        ledger = latest_ledger()
        gate = PerfEvaluator(..., ledger=ledger.outputs["ledger"])
        ```
    """
    return tfx.dsl.Resolver(
        strategy_class=LatestStrategy, ledger=tfx.dsl.Channel(type=types.PerfLedger)
    ).with_id("latest_perf_ledger")


def latest_plans(examples: tfx_types.BaseChannel | None = None) -> tfx.dsl.Resolver:
    """Returns the node whose output `previous_plans` goes into InputTuner.

    Args:
        examples: what InputTuner gets. Give it in a pipeline with caching, so that an unchanged
            InputTuner is still taken from cache (see `PlansBeforeStrategy`). Without it, the
            plans of all runs before are resolved, also those for the very same artifacts.

    Example:
        ```python
        plans = latest_plans(transform.outputs["transformed_examples"])
        input_tuner = InputTuner(..., previous_plans=plans.outputs["previous_plans"])
        ```
    """
    channels = {"previous_plans": tfx.dsl.Channel(type=types.InputPlan)}
    if examples is not None:
        channels["examples"] = examples
    return tfx.dsl.Resolver(
        strategy_class=PlansBeforeStrategy if examples is not None else LatestStrategy,
        config={"count": _PLANS},
        **channels,
    ).with_id("latest_input_plans")
