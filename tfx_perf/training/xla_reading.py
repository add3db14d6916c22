"""Reads what XLA made of a training's step."""

from typing import Any

from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.record import XlaAccount
from tfx_perf.xla import fusions, hlo


def account_of(model: Any, loop: Loop, plan: TrainingPlan, batch: Any) -> XlaAccount | None:
    """Returns the account of a training that has ended, None if XLA compiled nothing.

    The part of the step that XLA compiled is compiled once more, to be read.

    Args:
        model: a compiled Keras model.
        loop: what trained it.
        plan: of the training.
        batch: one element of the training data, None if there is no way to get one.
    """
    part = None
    if not plan.uses_xla and not (plan.is_plain_fit and getattr(model, "jit_compile", False)):
        return None
    shapes = loop.functions.compiled_shapes(plan)
    if batch is None:
        return XlaAccount(compiled_shapes=shapes, note="no batch can be read from x")
    if plan.uses_xla:
        part, batch = loop.functions.compiled_part(plan, batch)
    try:
        before = hlo.model_step_hlo(model, batch, optimized=False, step=part)
        after = hlo.model_step_hlo(model, batch, optimized=True, step=part).hlo_module
    except hlo.NotCompilable as error:
        return XlaAccount(compiled_shapes=shapes, note=str(error))
    found = fusions.count_fusions(after)
    return XlaAccount(
        compiled_shapes=shapes,
        fusion_count=found.count,
        fusion_saved_bytes=found.saved_bytes,
        # Optimised, some products are no longer written as dots; XLA may also recompute.
        executed_flops=max(map(hlo.count_flops, (before, after))),
    )
