"""Trials in a process of their own, where those of the training cannot make them.

That is where the data call Python functions, which may give what they have but once, and where
models of other precisions are built, by the user's code under another policy.
"""

import functools
import logging
import tempfile
import time
from typing import Any

from tfx_perf import errors, interception
from tfx_perf.components.optimized_trainer import supervised_trials
from tfx_perf.components.optimized_trainer.supervised_trials import TrialOrder
from tfx_perf.components.training_job import trainer_args
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.tf_internals import autograph
from tfx_perf.training import as_one_device, precision
from tfx_perf.training.keras_api import array_data, either_keras
from tfx_perf.training.loop import Loop
from tfx_perf.training.optimizations.precision import DtypePolicy
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.strategy_scope import StrategyScope
from tfx_perf.training.trials.choice import PlanChoice, TrialRecord, plain


@autograph.sparing_libraries
def carry_out(*, job: dict[str, Any], order: dict[str, Any]) -> dict[str, Any] | None:
    """Runs the user's code up to its first `fit`, and the trials there; is run in a child.

    Args:
        job: the `TrainingJob`.
        order: the `TrialOrder`; whatever the user's code writes goes into its folder.

    Returns:
        The `PlanChoice`; None if turns with oneDNN had better come before.

    Raises:
        UserError: the module, the splits or the examples are not there.
    """
    began = time.time()
    logging.basicConfig()  # to the log that is published beside the figures
    asked, told = TrainingJob.model_validate(job), TrialOrder.model_validate(order)
    artifacts, properties = asked.input_dict, asked.exec_properties
    run_fn = trainer_args.load_run_fn(properties)
    training = asked.settings.training
    strategy = asked.settings.distribution.made_strategy

    def run(name: str) -> None:
        outputs = trainer_args.outputs_in(tempfile.mkdtemp(prefix=f"{name}-", dir=told.folder))
        arguments = trainer_args.fn_args(artifacts, outputs, properties)
        if training.seed is not None:
            either_keras.set_random_seed(training.seed)
        run_fn(arguments)

    others: dict[DtypePolicy, interception.FitCall] = {}
    refused: list[TrialRecord] = []
    for name in precision.candidates() if training.precision == "auto" else ():
        # One after the other and before the user's own: their scopes must not be within it.
        try:
            with precision.policy(name), StrategyScope(strategy):
                others[name] = interception.capture_fit(
                    functools.partial(run, name), array_data.on_datasets
                )
        except errors.GIVEN_UP as error:  # the code may not be made for it
            plan = TrainingPlan(steps_per_call=1, precision=name)
            reason = errors.in_one_line(error)
            refused.append(TrialRecord(plan=plan, status="failed", reason=reason))

    def choose(call: interception.FitCall) -> PlanChoice | None:
        call = array_data.on_datasets(call)
        setup_seconds = time.time() - began
        # Each of the models of other precisions would need a context of its own.
        with as_one_device.trained(call, asked.settings.distribution):
            choice = supervised_trials.by_trials(
                call, Loop(call), order=told, job=asked, others=others, known=refused
            )
        return choice and choice.model_copy(
            update={
                "trial_import_seconds": began - told.asked - told.spent_seconds,
                "trial_setup_seconds": setup_seconds,
            }
        )

    try:
        with precision.policy(asked.precision), StrategyScope(strategy) as scope:
            choice = interception.capture_fit(functools.partial(run, "own"), scope.outside(choose))
    except errors.UserError as error:  # it did not call `fit`, so that there is nothing to plan
        choice = plain(str(error))
    return choice and choice.model_dump(mode="json")
