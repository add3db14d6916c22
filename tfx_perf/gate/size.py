"""The size of a model: by how much comparable runs may differ in it, and what follows from it.

A vocabulary that grows with the data makes a model of every day another one. Runs of about the
same size are compared, and what their size explains is taken out of their figures.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tfx_perf import cache_key, metrics
from tfx_perf.gate import noise

_PARAMETERS, _FLOPS = "parameter_count", "flops_per_step"
FIELDS = _PARAMETERS, _FLOPS
"""Fields of an environment that say how large the model is."""

LARGEST_RATIO = 1.25
"""Runs whose models differ by more are not compared."""

LARGEST_UNCERTAINTY = 0.03
"""Nor are figures for which the size leaves open more than this, relative to them."""

# Which way a figure goes with the size, by its unit; all others do not follow it.
_EXPONENTS = {"seconds": 1.0, "joules": 1.0, "currency": 1.0, "bytes": 1.0, "1/second": -1.0}
# A figure may follow the size or not follow it at all: half of it, give or take a half.
_USUAL_SLOPE = 0.5


def of(environment: Mapping[str, str], *, fields: Sequence[str] = FIELDS) -> dict[str, float]:
    """Returns the fields of an environment that say how large something is, where they do.

    Args:
        environment: of a run.
        fields: by default those of the model.
    """
    found = {}
    for field in fields:
        try:
            number = float(environment[field])
        except (KeyError, ValueError):
            continue
        if number > 0 and math.isfinite(number):
            found[field] = number
    return found


def others(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without the model's size."""
    sizes = of(environment)
    return {field: value for field, value in environment.items() if field not in sizes}


def differences(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Returns the fields for which two environments are not comparable, with both values.

    Those that `cache_key.differences` finds, but for sizes that are about the same.
    """
    sizes, other_sizes = of(a), of(b)
    alike = {
        field
        for field in sizes.keys() & other_sizes.keys()
        if abs(math.log(sizes[field] / other_sizes[field])) <= math.log(LARGEST_RATIO)
    }
    found = cache_key.differences(a, b)
    return {field: values for field, values in found.items() if field not in alike}


def at_size_of(
    environment: Mapping[str, str],
    *,
    key: str,
    figures: Sequence[float],
    environments: Sequence[Mapping[str, str]],
    prior: float,
) -> tuple[list[float], float]:
    """Returns what a metric of some runs would have been in a model of another size.

    A power of the size, between none and the first, which the runs themselves tell as far as
    they can: the slope of a linear regression in logarithms with a normal prior (Gelman et al.,
    "Bayesian Data Analysis", 3rd ed., section 14.8).

    Args:
        environment: of the run whose model has that size.
        key: the metric.
        figures: one a run.
        environments: one a run.
        prior: relative standard deviation of a run.

    Returns:
        The figures, as they are where all models are of one size or the metric does not follow
        it; and the relative standard deviation that not knowing the power adds to their mean.
    """
    way = _EXPONENTS.get(metrics.lookup(key).unit, 0.0)
    field = _PARAMETERS if noise.kind(key) is noise.Kind.MEMORY else _FLOPS
    field = field if field in of(environment) else _PARAMETERS
    own = of(environment).get(field)
    sizes = [of(one).get(field) for one in environments]
    if not way or own is None or None in sizes or min(figures, default=0.0) <= 0:
        return list(figures), 0.0
    x, y = np.log(np.asarray(sizes) / own), np.log(figures)
    x_centred = x - np.mean(x)
    weight, usual = (prior / _USUAL_SLOPE) ** 2, way * _USUAL_SLOPE
    slope = (usual * weight + x_centred @ y) / (weight + x_centred @ x_centred)
    slope = float(np.clip(slope, min(0.0, way), max(0.0, way)))
    uncertainty = prior / math.sqrt(weight + x_centred @ x_centred) * abs(float(np.mean(x)))
    return (np.asarray(figures) * np.exp(-slope * x)).tolist(), uncertainty
