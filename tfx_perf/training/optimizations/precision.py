"""A narrower type to compute in."""

from typing import Any, Literal

from tfx_perf.training.optimizations.optimization import Optimization

DtypePolicy = Literal["mixed_bfloat16", "mixed_float16"]


class Precision(Optimization):
    """The dtype policy that the model must be built under; None leaves it.

    A policy counts when a layer is made, so the starter of the trials' processes tries it.
    """

    name = "precision"
    annotation = DtypePolicy | None
    off = None
    in_plain_fit = True

    def words(self, value: str) -> str:
        """Returns the policy's name."""
        return f", {value}"


def policy_name(model: Any) -> str:
    """Returns the name of the model's dtype policy, e.g. `mixed_bfloat16`."""
    own = getattr(model, "dtype_policy", None)
    return getattr(own, "name", None) or str(own)
