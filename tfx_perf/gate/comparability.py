"""Which runs a figure of a run may be compared with."""

from collections.abc import Sequence

from tfx_perf import metrics
from tfx_perf.gate import noise
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run

_BATCH_SIZE = "global_batch_size"
_STEPS_RATIO = 1.05


def runs(key: str, *, candidate: Run, ledger: Ledger) -> Sequence[Run]:
    """Returns the blessed runs that a metric of a run is compared with, oldest first.

    Speed and memory: those that were measured in the same environment, at about the same size.
    Quality depends on neither, so that it is compared with every run of the node; the loss of a
    training only with those that trained about as many steps on batches of one size, with the same
    loss function. What only a whole training tells is compared with none if there is only a part.

    Args:
        key: the metric.
        candidate: the run.
        ledger: the blessed runs.
    """
    if is_of_a_part(key, candidate):
        return ()
    if noise.kind(key) is not noise.Kind.QUALITY:
        return [run for run in ledger.comparable(candidate) if not is_of_a_part(key, run)]
    known = ledger.of_node(candidate)
    if metrics.lookup(key).unit != "loss":
        return known
    return [run for run in known if _trains_alike(run, candidate)]


def is_of_a_part(key: str, run: Run) -> bool:
    """Whether a figure is of the last process of a training that was interrupted, and only of that.

    Args:
        key: the metric.
        run: the run.
    """
    return run.is_resumed and key in metrics.OF_ONE_PROCESS


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
    batch_sizes = {each.environment.get(_BATCH_SIZE) for each in (run, other)}
    if len(batch_sizes) > 1 or run.loss != other.loss:
        return False
    own, others = run.trained_steps, other.trained_steps
    if not own or not others:
        return own == others
    return max(own, others) <= _STEPS_RATIO * min(own, others)
