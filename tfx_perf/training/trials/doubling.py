"""How much longer a step takes on twice the batch: whether the batch keeps the machine busy."""

import logging

from tfx_perf import errors, statistics
from tfx_perf.interception import FitCall
from tfx_perf.memory import batches
from tfx_perf.tf_data import datasets
from tfx_perf.training.loop import Loop
from tfx_perf.training.measuring import meters
from tfx_perf.training.trials.choice import PlanChoice
from tfx_perf.training.trials.starting_point import StartingPoint
from tfx_perf.training.trials.turns import Schedule
from tfx_perf.training.trials.variant import Variant

_LOGGER = logging.getLogger(__name__)

_ROUNDS = 6
# Of the training, as foreseen: whether it is worth knowing.
_MOST_SHARE = 0.01
_BLOCKS_SECONDS = 3.0


def double_batch_time_ratio(call: FitCall, choice: PlanChoice) -> statistics.Interval | None:
    """Returns the time of the plan's step on twice the batch over that on the batch.

    Both batches are repeated from memory. The model's variables are put back.

    Args:
        call: the user's `fit`.
        choice: what the trials found; its plan is used.

    Returns:
        None if it would take more than a hundredth of the training, if the memory may not
        suffice, or if the model does not take such a batch.
    """
    loop = Loop(call)
    if not _is_worth_it(loop, choice):
        return None
    start = StartingPoint({None: Variant(call, loop)})
    try:
        return _measured(call, loop, choice)
    except errors.GIVEN_UP:  # e.g. a layer that knows the size of the batch
        _LOGGER.info("A batch of twice the size was not measured.", exc_info=True)
        return None
    finally:
        start.restore()
        call.model.reset_metrics()


def _is_worth_it(loop: Loop, choice: PlanChoice) -> bool:
    trials = [trial for trial in choice.trials if trial.plan == choice.plan and trial.step_time]
    step_time = trials[0].step_time if trials else None
    if not step_time or not loop.total_length:
        return False
    training_seconds = loop.total_length * step_time.value
    needed_seconds = 2 * (trials[0].compile_time_seconds or 0.0) + _BLOCKS_SECONDS
    # Twice the batch needs at most as much again as this process has needed so far.
    return (
        meters.has_memory_for_as_much_again()
        and needed_seconds < _MOST_SHARE * training_seconds
    )


def _measured(call: FitCall, loop: Loop, choice: PlanChoice) -> statistics.Interval:
    batch = batches.peek(call)
    one = datasets.repeated(batch)
    double = batches.batch_of(one, 2 * batches.batch_size_of(batch))
    sets = [datasets.without_autotune(each) for each in (one, datasets.repeated(double))]
    rounds: list[list[float]] = []

    def schedule() -> Schedule:
        turns = [loop.turn(choice.plan, iterator=loop.iterator_over(each)) for each in sets]
        for turn in turns:
            yield turn  # traces and compiles
        for _ in range(_ROUNDS):
            blocks = []
            for turn in turns:
                blocks.append((yield turn))
            rounds.append(blocks)

    loop.take_turns(schedule(), sets[0])
    own, doubled = zip(*rounds, strict=True)
    return statistics.ratio_interval(doubled, own)
