"""Figures of one step are compared with the same runs.

The step time is a median, and what follows from it is made of a mean, so that the one may show a
change of level that the other does not. Held against other runs, one figure would say that a run is
faster, and the other that it is slower; and a share of a shorter step is another share.
"""

import dataclasses
from collections.abc import Mapping

from tfx_perf import metrics
from tfx_perf.gate.change import Change

# First what decides where others disagree.
_OF_A_STEP = (*metrics.STEP_TIME_EXPONENTS, *metrics.SHARES_OF_A_STEP)


def at_one_level(changes: Mapping[str, Change]) -> dict[str, Change]:
    """Returns the comparisons, those of a step's figures with the same runs.

    A run is of the present level if it is by each of them.

    Args:
        changes: what was compared, by metric.
    """
    own = {key: changes[key] for key in _OF_A_STEP if key in changes}
    runs: list[str] = []
    for change in own.values():
        common = [run for run in change.own_level_runs if run in runs]
        # Where they have none in common, the first one is right: no stall moves a median.
        runs = common or runs or list(change.own_level_runs)
    shared = {key: dataclasses.replace(change, level_runs=runs) for key, change in own.items()}
    return {**changes, **shared}
