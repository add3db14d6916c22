"""How far runs' own figures are uncertain because their steps are few.

Steps of one run share its disturbances, so that they say nothing of another run. But how far they
scatter from one part of the run to the next says how far their median and mean are off.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from tfx_perf import metrics
from tfx_perf.gate.run import Run


@dataclasses.dataclass(frozen=True)
class OwnErrors:
    """The standard errors of one figure of some runs, as shares of it; 0: nothing is known.

    Attributes:
        candidate: of the run to judge; no less than usual, because a run that happened to have a
            calm minute does not know it.
        blessed: of the blessed runs, by their ids.
        usual: what blessed runs of as many steps have as a rule, likewise. Runs count by it: by
            their own errors, those that had a calm minute would be the measure of all others.
    """

    candidate: float = 0.0
    blessed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    usual: Mapping[str, float] = dataclasses.field(default_factory=dict)


def of(key: str, *, candidate: Run, blessed: Sequence[Run]) -> OwnErrors:
    """Returns the errors of a figure.

    Args:
        key: the metric.
        candidate: the run to judge.
        blessed: those that it is compared with.
    """
    known_by = metrics.ERROR_RATIOS.get(key)
    if known_by is None:
        return OwnErrors()
    known = {run.run_id: run.figure(known_by) or 0.0 for run in blessed}
    # Errors fall with the square root of the steps.
    of_a_step = [known[run.run_id] * math.sqrt(_steps(run)) for run in blessed]
    usual = statistics.median([error for error in of_a_step if error] or [0.0])
    return OwnErrors(
        candidate=max(candidate.figure(known_by) or 0.0, usual / math.sqrt(_steps(candidate))),
        blessed=known,
        usual={run.run_id: usual / math.sqrt(_steps(run)) for run in blessed},
    )


def _steps(run: Run) -> float:
    return max(1.0, run.figure("train_step_count") or 1.0)
