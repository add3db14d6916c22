"""That the model keeps its own precision where `training.precision: auto` has looked at others."""

from collections.abc import Iterator, Sequence

from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.trials.choice import TrialRecord


def in_words(record: TrainingRecord) -> list[str]:
    """Returns why the model's own precision stays, a sentence for each other one.

    Args:
        record: of the training; none if it has another precision, or none was looked at.
    """
    if record.plan.precision is not None:
        return []
    own = record.environment.get("precision", "the model's own precision")
    names = dict.fromkeys(each.plan.precision for each in record.trials if each.plan.precision)
    return [f"{own} stays: {name} {_outcome(name, record.trials)}." for name in names]


def _outcome(name: str, trials: Sequence[TrialRecord]) -> str:
    tried = [each for each in trials if each.plan.precision == name]
    ratios = [ratio for each in tried for ratio in _ratios(each, trials)]
    if ratios:
        return f"is {max(ratios):.2f} times as fast"
    # What was tried says more than what was not.
    first = min(tried, key=lambda each: each.status == "untried")
    return f"was not chosen ({first.reason})"


def _ratios(trial: TrialRecord, trials: Sequence[TrialRecord]) -> Iterator[float]:
    """Yields the step time of the same plan in the model's own precision over a plan's."""
    if trial.status != "slower" or trial.step_time is None:
        return
    own_plan = trial.plan.model_copy(update={"precision": None})
    for own in trials:
        if own.plan == own_plan and own.step_time is not None:
            yield own.step_time.value / trial.step_time.value
