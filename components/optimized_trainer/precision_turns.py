"""`training.precision: auto` among workers: a team in each precision, in turns.

One process has a model in each precision for its trials (`trials_apart`). What puts Keras right
over workers stands around one model at a time, so that here each precision has its own workers.
"""

import pathlib
import time

from tfx_perf.components.optimized_trainer import plain_turns, previous
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.training import precision
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials import kept_choice
from tfx_perf.training.trials.plain_fit_turns import PlainFitTurns

# A narrower type may train the same for a while, as in the trials of one process.
_LOSS_PASSES = 5
# It changes the numbers, and the steps of workers vary more: chance must not choose it.
_FEWEST_ROUNDS = 20


def found(
    job: TrainingJob,
    *,
    key: dict[str, str],
    budget_seconds: float,
    checkpoint_folder: str | None,
    log_folder: pathlib.Path,
) -> PlainFitTurns:
    """Returns what the turns came to, now, before an interruption, or in a run before.

    What a run before has found holds as its plan does; see `previous.find`. Where that has to be
    found anew, what the code has failed in is not tried again.

    Args:
        job: the training, on several workers of this machine.
        key: of the plan's choice; see `plan_key`.
        budget_seconds: what is left of the trials'.
        checkpoint_folder: where a training that is interrupted finds what was chosen; None if
            nothing outlives the process.
        log_folder: where the processes' output goes; made if it is not there.
    """
    before = kept_choice.kept_precision(checkpoint_folder, key)
    if before is not None:
        return before.for_another_run()
    plans = {
        name.replace("_", "-"): TrainingPlan(precision=name) for name in precision.candidates()
    }
    lost = previous.lost_turns(
        job.input_dict.get("previous_metrics") or (), key, plans.values()
    )
    if lost:
        return PlainFitTurns(without=None, tried=lost, seconds=0.0, key=key)
    began = time.monotonic()
    turns = plain_turns.take(
        job,
        plans,
        as_it_is="own-precision",
        budget_seconds=budget_seconds,
        loss_passes=_LOSS_PASSES,
        fewest_rounds=_FEWEST_ROUNDS,
        log_folder=log_folder,
    )
    turns = turns.model_copy(update={"key": key, "wall_seconds": time.monotonic() - began})
    kept_choice.keep_precision(checkpoint_folder, turns)
    return turns
