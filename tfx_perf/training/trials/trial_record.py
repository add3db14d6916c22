"""TrialRecord: how one plan did in the trials."""

from typing import Literal

from tfx_perf import records, statistics
from tfx_perf.training.plan import TrainingPlan

Status = Literal["reference", "chosen", "slower", "different", "failed"]


class TrialRecord(records.Record):
    """One plan that was tried.

    Attributes:
        plan: the plan.
        status: `reference` is plain fit; `chosen` won; `slower` lost or tied; `different`
            did not reach plain fit's state or, in another precision, its loss; `failed` raised,
            crashed or ran out of time.
        reason: one sentence.
        loss: mean training loss over the steps of the equivalence check; None if there is none.
        compile_time_seconds: tracing and compiling, XLA included; None if that failed.
        compiled_shapes: input shapes that XLA compiled its step for, or failed to, one program
            each; None without XLA, and where nothing was compiled.
        step_time: seconds per step, median over the blocks.
        speedup: plain fit's step time over this one's, in interleaved pairs; for a plan with
            oneDNN, that over plain fit with it, times what oneDNN gained plain fit.
    """

    plan: TrainingPlan
    status: Status
    reason: str
    loss: float | None = None
    compile_time_seconds: float | None = None
    compiled_shapes: tuple[str, ...] | None = None
    step_time: statistics.Interval | None = None
    speedup: statistics.Interval | None = None
