"""What the trials try against plain `fit`."""

from collections.abc import Sequence
from typing import Any

from tfx_perf.config import PerfConfig
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import PLAIN_FIT, DtypePolicy, TrainingPlan
from tfx_perf.training.step import compiled_call, fused_update
from tfx_perf.training.trials.trial_record import TrialRecord

Family = tuple[TrainingPlan, ...]  # plans that share a traced function

# In a call that takes this long, the work done in Python (about 1 ms) no longer counts.
_LONG_CALL_SECONDS = 0.1


def longest_call(step_seconds: float) -> int:
    """Returns how many steps a call may have, because more would gain nothing."""
    return max(1, int(_LONG_CALL_SECONDS / step_seconds))


def same_function(plan: TrainingPlan, other: TrainingPlan) -> bool:
    """Whether two plans differ only in how many steps a call has."""
    return plan.model_copy(update={"steps_per_call": other.steps_per_call}) == other


def reference(model: Any, loop: Loop, *, settings: PerfConfig) -> TrainingPlan:
    """Returns what plans are compared with: plain `fit`, unless it may need too much memory.

    Args:
        model: what is to be trained.
        loop: what would run the plans.
        settings: the section `training`.
    """
    recompute = settings.training.recompute
    if not recompute or loop.line.splitting_obstacle(model):
        return PLAIN_FIT
    return TrainingPlan(steps_per_call=loop.users_steps_per_call, recompute=recompute)


def families(
    model: Any,
    loop: Loop,
    *,
    settings: PerfConfig,
    step_seconds: float,
    precision: DtypePolicy | None = None,
) -> tuple[list[Family], list[TrialRecord]]:
    """Returns the plans to try, by family, and the outcomes of those that cannot be.

    Args:
        model: what is to be trained.
        loop: what would run the plans.
        settings: the sections `training` and `compilation`.
        step_seconds: of plain `fit`.
        precision: the policy that the model was built under, if the user's code did not set it.
    """
    longest = min(longest_call(step_seconds), loop.train_length or 1)
    sizes = sorted({min(size, longest) for size in settings.training.steps_per_call})
    unsplit = loop.line.splitting_obstacle(model)
    # Not a choice of its own: it computes the same, and no slower beyond noise.
    fused = not unsplit and fused_update.is_possible(model.optimizer, loop.line)
    always: dict[str, Any] = {
        "fused_update": fused,
        "recompute": reference(model, loop, settings=settings).recompute,
        "precision": precision,
    }
    found: list[Sequence[TrainingPlan]] = [
        [
            TrainingPlan(steps_per_call=size, **always)
            for size in sizes
            if size > 1 or fused or precision  # else it would be the reference over again
        ]
    ]
    refused = []
    if settings.compilation.enabled:
        for plan, obstacle in (
            (TrainingPlan(steps_per_call=sizes[-1], xla=True, **always), unsplit),
            (
                TrainingPlan(steps_per_call=sizes[-1], xla_call=True, precision=precision),
                "it keeps all activations, and `recompute` is asked for"
                if always["recompute"]
                else compiled_call.obstacle(model, loop.line, loop.element_spec),
            ),
        ):
            if obstacle:
                refused.append(TrialRecord(plan=plan, status="failed", reason=obstacle))
            else:
                found.append([plan])
    return [tuple(plans) for plans in found if plans], refused

