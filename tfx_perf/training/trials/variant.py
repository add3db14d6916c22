"""Variant: the training to plan for, or the same one built under another dtype policy."""

import dataclasses
from collections.abc import Mapping

from tfx_perf import errors
from tfx_perf.interception import FitCall
from tfx_perf.training.loop import Loop
from tfx_perf.training.optimizations.precision import DtypePolicy

BuiltUnder = DtypePolicy | None  # None: whatever the user's code says


@dataclasses.dataclass(frozen=True)
class Variant:
    """A model in one precision.

    Attributes:
        call: its `fit`.
        loop: what runs it.
    """

    call: FitCall
    loop: Loop


def variants(own: Variant, others: Mapping[DtypePolicy, FitCall]) -> dict[BuiltUnder, Variant]:
    """Returns all, by policy; the others begin with the weights of the user's own.

    Args:
        own: the user's; its model has its variables.
        others: the same `fit`, by the policy that its model was built under.

    Raises:
        UserError: the models differ in more than their precision.
    """
    found: dict[BuiltUnder, Variant] = {None: own}
    for name, call in others.items():
        found[name] = variant = Variant(call, Loop(call))
        variant.loop.prepare()
        pairs = list(zip(call.model.variables, own.call.model.variables, strict=False))
        same = len(call.model.variables) == len(own.call.model.variables)
        if not same or any(to.shape != source.shape for to, source in pairs):
            raise errors.UserError(
                "Expected the training code to build the same model every time. Received: "
                f"other variables under precision={name}. Set training.precision to one policy."
            )
        for to, source in pairs:
            to.assign(source)
    return found
