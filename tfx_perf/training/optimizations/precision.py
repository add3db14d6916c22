"""A narrower type to compute in."""

from typing import Literal

from tfx_perf.training.optimizations.optimization import Fit, Optimization

DtypePolicy = Literal["mixed_bfloat16", "mixed_float16"]


class Precision(Optimization):
    """The dtype policy that the model must be built under; None: as it is.

    A policy counts when a layer is made, so that trials have a `Variant` of the model for each.
    """

    name = "precision"
    annotation = DtypePolicy | None
    off = None
    in_plain_fit = True
    changes_numbers = True
    hoped_share = 0.3  # where the device computes with narrower types, else nothing

    def words(self, value: str) -> str:
        """Returns the policy's name."""
        return f", {value}"

    def always(self, fit: Fit) -> str | None:
        """Returns what the model was built under."""
        return fit.precision
