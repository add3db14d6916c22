"""Finds the ledger of the run before."""

from tfx import v1 as tfx
from tfx.types import artifact

from tfx_perf.components import types


class LatestLedgerStrategy(tfx.dsl.experimental.ResolverStrategy):
    """Resolves the newest artifact, and to nothing where there is none yet.

    TFX's LatestArtifactStrategy would record a failed execution on a pipeline's first run.
    """

    def resolve_artifacts(
        self, store: object, input_dict: dict[str, list[artifact.Artifact]]
    ) -> dict[str, list[artifact.Artifact]]:
        """Returns at most one artifact for each key."""
        return {
            key: sorted(candidates, key=lambda candidate: candidate.id)[-1:]
            for key, candidates in input_dict.items()
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
        strategy_class=LatestLedgerStrategy,
        ledger=tfx.dsl.Channel(type=types.PerfLedger),
    ).with_id("latest_perf_ledger")
