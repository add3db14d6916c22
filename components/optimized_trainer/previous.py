"""Choices of runs before, used again where trials would find the same."""

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

from tfx.types import artifact

from tfx_perf import cache_key, errors, storage
from tfx_perf.components import artifacts
from tfx_perf.training import record
from tfx_perf.training.optimizations.onednn import OneDnn
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice, StrategyChoice, TrialRecord

_RUNS = 20  # among which one may be that of one replica

_LOGGER = logging.getLogger(__name__)


def of_node(target: artifact.Artifact) -> Iterator[tuple[str, record.TrainingRecord]]:
    """Yields where the records of the node's last runs lie, and what they are, the newest first.

    TFX has a folder for each execution of a node, named by its number. Beside it are those before,
    also of runs on the same examples, which `latest_metrics` leaves out.

    Args:
        target: the `PerfMetrics` of this run.
    """
    own = storage.path(target.uri)
    if not own.name.isdecimal():
        return
    try:
        beside = [int(each.name) for each in own.parent.iterdir() if each.name.isdecimal()]
    except Exception as error:  # whatever a store raises: the model is trained
        _LOGGER.warning("Runs before are not looked at: %s", errors.in_one_line(error))
        return
    for number in sorted((each for each in beside if each < int(own.name)), reverse=True)[:_RUNS]:
        file = own.parent / str(number) / record.FILE_NAME
        with contextlib.suppress(errors.UserError):  # unmeasured, or of another version
            yield str(file.parent), record.TrainingRecord.read(file)


def plan(items: Sequence[artifact.Artifact]) -> TrainingPlan | None:
    """Returns what the last run trained with, whatever has changed since; None: plain `fit`.

    Without oneDNN, which whoever starts the processes of the trials adds to their plans.

    Args:
        items: see `find`.
    """
    records = artifacts.newest_first(items, record.TrainingRecord, file_name=record.FILE_NAME)
    last = next((found.plan for _, found in records), None)
    if last is None or last.is_plain_fit:
        return None
    return last.only(lambda each: each.name != OneDnn.name)


def strategy(
    items: Sequence[artifact.Artifact], key: Mapping[str, str]
) -> StrategyChoice | None:
    """Returns what the newest run with the same key was distributed by, if that was measured.

    It holds also where trials may find a better plan.

    Args:
        items: see `find`.
        key: see `find`; empty if there is nothing to be measured.
    """
    records = artifacts.newest_first(items, record.TrainingRecord, file_name=record.FILE_NAME)
    found = (each.strategy for _, each in records)
    measured = (each for each in found if each is not None and each.speedup is not None)
    return next((each for each in measured if key and each.key == key), None)


def lost_turns(
    items: Sequence[artifact.Artifact], key: Mapping[str, str], plans: Collection[TrainingPlan]
) -> tuple[TrialRecord, ...]:
    """Returns the trials in which the code has failed under plans, in the newest run that tells.

    It would fail again, also where trials of other plans are made anew.

    Args:
        items: see `find`.
        key: likewise.
        plans: plain `fit` in other ways.

    Returns:
        One for each plan; none if one of them may be worth another try.
    """
    for _, each in artifacts.newest_first(
        items, record.TrainingRecord, file_name=record.FILE_NAME
    ):
        if each.key == key:
            found = [trial for trial in each.trials if trial.plan in plans]
            lost = [trial for trial in found if trial.status == "failed" and not trial.may_pass]
            return tuple(lost) if len(lost) == len(plans) else ()
    return ()


def find(
    items: Sequence[artifact.Artifact], key: Mapping[str, str], *, planned_runs: int
) -> PlanChoice | None:
    """Returns the choice of the newest run with the same key, if it is final; else None.

    Why the others are not used is logged.

    Args:
        items: `PerfMetrics` artifacts; what is no readable record is skipped with a warning.
        key: of the choice that is wanted.
        planned_runs: trainings that it is for.
    """
    for uri, found in artifacts.newest_first(
        items, record.TrainingRecord, file_name=record.FILE_NAME
    ):
        changes = cache_key.differences(found.key, key)
        if changes:
            _LOGGER.info(
                "The plan in %s is not used again: %s.", uri, cache_key.describe(changes)
            )
            continue
        choice = found.choice_for_another_run(uri, planned_runs=planned_runs)
        # Where it is not used, older ones with this key would not do: it would have used them.
        is_used = "used again" if choice else "not used again: trials may find a better"
        _LOGGER.info("The plan in %s is %s.", uri, is_used)
        return choice
    return None
