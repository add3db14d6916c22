"""The gate's decision for whoever looks at a terminal: the figures, what refuses, what to do."""

import shlex
from collections.abc import Iterator

from tfx_perf import formatting
from tfx_perf.gate.outcome import Outcome
from tfx_perf.gate.record import GateRecord
from tfx_perf.training import scaling

_LEADING = (
    "step_time_seconds", "examples_per_second", "training_memory_bytes", "train_loss",
    "validation_loss", "cost_per_million_examples",
)  # fmt: skip
_MOST = 5


def lines(
    decision: GateRecord, *, run_to_bless: str | None = None, database: str = ""
) -> Iterator[str]:
    """Yields the decision; then the figures, and of a refusal the reasons and what to do.

    Args:
        decision: on a run.
        run_to_bless: arguments of `tfx-perf bless`; None: those for a pipeline's run.
        database: path of ML Metadata, where the pipeline's run is recorded; empty if not known.
    """
    yield decision.headline
    figures = ", ".join(_figures(decision))
    if figures:
        yield f"  {figures}"
    if decision.blessed and decision.remeasured:  # of a refused run the reasons have it
        yield f"  {decision.remeasured.answer(decision.verdict)}"
    speedup = decision.candidate.figure("replica_speedup_ratio")
    if speedup is not None and 0 < speedup < scaling.SURELY_SLOWER:
        whose = "the training's" if decision.candidate.is_of_script else "OptimizedTrainer's"
        yield (
            f"  {formatting.compared_speed(speedup)} the last run on one replica: "
            f"{whose} report says why, and what to do"
        )
    refusals = [outcome for outcome in decision.outcomes if outcome.refuses]
    for outcome in refusals[:_MOST]:
        if outcome is not refusals[0]:  # which the headline has
            yield f"  {outcome.metric} ({outcome.verdict.value}): {outcome.reason}"
        if outcome.remedy:
            yield f"  What to do: {outcome.remedy}"
    if refusals[_MOST:]:
        yield f"  and {len(refusals) - _MOST} more, see the report"
    if refusals:
        run = decision.candidate
        node = f" --node {run.node}" if run.node else ""  # a pipeline may have several gates
        recorded = shlex.quote(database) if database else "DB"
        which = run_to_bless or f"{run.run_id}{node} --reason TEXT --metadata {recorded}"
        yield f"  To let it count as good: tfx-perf bless {which}"


def _figures(decision: GateRecord) -> Iterator[str]:
    """Yields e.g. `step time 258 µs (-0.8 %)`, the change where there was a comparison."""
    compared = {item.metric: item for item in decision.outcomes if item.kind == "change"}
    for key in _LEADING:
        value = decision.candidate.figure(key)
        if value is not None:
            shown = f"{formatting.label(key)} {formatting.format_value(key, value)}"
            yield f"{shown}{_change(compared.get(key))}"


def _change(outcome: Outcome | None) -> str:
    if outcome is None or outcome.from_baseline is None:
        return ""
    change = outcome.from_baseline.value
    if change > 1 and (outcome.baseline or 0) > 0:
        return f" ({1 + change:.1f} times)"
    return f" ({formatting.signed_percent(change)} %)"
