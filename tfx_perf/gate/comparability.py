"""Which runs a figure of a run may be compared with."""

from collections.abc import Sequence

from tfx_perf import metrics
from tfx_perf.gate import noise
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run

_STEPS, _BATCH_SIZE = "train_step_count", "global_batch_size"
_STEPS_RATIO = 1.05


def runs(key: str, *, candidate: Run, ledger: Ledger) -> Sequence[Run]:
    """Returns the blessed runs that a metric of a run is compared with, oldest first.

    Speed and memory: those that were measured in the same environment, at about the same size.
    Quality depends on neither, so that it is compared with every run of the node; the loss of a
    training only with those that trained about as many steps on batches of one size.

    Args:
        key: the metric.
        candidate: the run.
        ledger: the blessed runs.
    """
    if noise.kind(key) is not noise.Kind.QUALITY:
        return ledger.comparable(candidate)
    known = ledger.of_node(candidate)
    if metrics.lookup(key).unit != "loss":
        return known
    return [run for run in known if _trains_alike(run, candidate)]


def is_of_other_trainings(key: str, *, candidate: Run, ledger: Ledger) -> bool:
    """Whether comparable runs have a training's loss, and trained more or fewer steps.

    Args:
        key: the metric.
        candidate: the run.
        ledger: the blessed runs.
    """
    if metrics.lookup(key).unit != "loss":
        return False
    having = [run for run in ledger.comparable(candidate) if run.figure(key) is not None]
    return bool(having) and not any(_trains_alike(run, candidate) for run in having)


def _trains_alike(run: Run, other: Run) -> bool:
    if run.environment.get(_BATCH_SIZE) != other.environment.get(_BATCH_SIZE):
        return False
    own, others = run.figure(_STEPS), other.figure(_STEPS)
    if not own or not others:
        return own == others
    return max(own, others) <= _STEPS_RATIO * min(own, others)
