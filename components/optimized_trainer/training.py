"""One training, in a process of its own, and what is published of it."""

import contextlib
import logging
import traceback
from collections.abc import Callable
from typing import Any, Literal

from tfx.components.trainer import fn_args_utils
from tfx.dsl.io import fileio
from tfx.types import artifact
from tfx.utils import json_utils

from tfx_perf import errors, interception, script, storage, unmeasured
from tfx_perf.components import artifacts
from tfx_perf.components.optimized_trainer import plans, supervised_trials
from tfx_perf.components.optimized_trainer.kept_model_run import KeptModelRun
from tfx_perf.components.optimized_trainer.supervised_trials import TrialOrder
from tfx_perf.components.optimized_trainer.training_result import TrainingResult
from tfx_perf.components.training_job import job as jobs
from tfx_perf.components.training_job import trainer_args
from tfx_perf.report import origin as origins
from tfx_perf.report import training_report
from tfx_perf.tf_internals import autograph
from tfx_perf.training import precision, record, scaling, session
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.loop import Loop
from tfx_perf.training.recovery import generators
from tfx_perf.training.step import evaluation
from tfx_perf.training.strategy_scope import StrategyScope
from tfx_perf.training.trials import kept_choice, trials_here
from tfx_perf.training.trials.choice import PlanChoice, StrategyChoice, plain
from tfx_perf.xla import aot_export

_LOGGER = logging.getLogger(__name__)

_Fit = Callable[[interception.FitCall], Any]

# What another process must have: libraries converted by AutoGraph, turns with oneDNN before the
# trials, or a plan from trials that this one cannot make.
Lack = Literal["conversion", "onednn", "trials apart"]


def carry_out(
    *,
    job: dict[str, Any],
    outputs: str,
    choice: dict[str, Any] | None,
    order: dict[str, Any] | None,
    checkpoint_folder: str | None,
    converts_libraries: bool,
    random_states: dict[str, Any],
) -> dict[str, Any] | Lack:
    """Trains; is run in a child, by `supervision`.

    Args:
        job: the `TrainingJob`.
        outputs: OptimizedTrainer's, by `json_utils`.
        choice: the `PlanChoice` for the `fit` that it names; None: trials find it here.
        order: the `TrialOrder` for these, and for every other `fit`; None: there are none.
        checkpoint_folder: see `run`.
        converts_libraries: whether AutoGraph converts all that it does by itself.
        random_states: of the process that this one stands for.

    Returns:
        The `TrainingResult`, or what another process must have to train. What was trained until
        then is in the checkpoints, from which it goes on.
    """
    generators.put_back(random_states)
    training = jobs.TrainingJob.model_validate(job)
    properties = training.exec_properties
    trials = None
    if order is not None:
        trials = _TrialsHere(
            TrialOrder.model_validate(order),
            training,
            checkpoint_folder,
            may_lack=choice is None,
        )
    spared = contextlib.nullcontext() if converts_libraries else autograph.libraries_unconverted()
    try:
        with spared:
            record = run(
                training,
                run_fn=trainer_args.load_run_fn(properties),
                arguments=trainer_args.fn_args(
                    training.input_dict, json_utils.loads(outputs), properties
                ),
                choice=None if choice is None else PlanChoice.model_validate(choice),
                choose=_without_trials if trials is None else trials.choose,
                checkpoint_folder=checkpoint_folder,
            )
    except autograph.NeedsConversionError:
        if converts_libraries:
            raise
        traceback.print_exc()
        return "conversion"
    except (Exception, interception.AbandonedError):
        if trials is None or trials.lack is None:
            raise
    if trials is not None and trials.lack is not None:
        return trials.lack
    return TrainingResult(record=record).model_dump(mode="json")


def _without_trials(call: interception.FitCall, loop: Loop) -> PlanChoice:
    return plain("trials of it have ended a process")


class _TrialsHere:
    """The trials in this process.

    Attributes:
        lack: what they lack here; None if nothing is known to.
    """

    def __init__(
        self,
        order: TrialOrder,
        job: jobs.TrainingJob,
        checkpoint_folder: str | None,
        *,
        may_lack: bool,
    ) -> None:
        self._order, self._job, self._checkpoint_folder = order, job, checkpoint_folder
        self._may_lack = may_lack
        self.lack: Lack | None = None

    def choose(self, call: interception.FitCall, loop: Loop) -> PlanChoice:
        """Returns what they find.

        Where another `fit` may have trained before, this process has to do: in another one that
        would train again.

        Raises:
            AbandonedError: they lack something, so that all is left to another process.
        """
        may_lack, self._may_lack = self._may_lack, False
        order = self._order
        if not may_lack:
            others = {"may_ask_for_onednn": False, "spent_seconds": 0.0}
            order = order.model_copy(update=others)
        with trials_here.on_own_data(call, loop) as own:
            if own is None and not may_lack:
                return plain(trials_here.NEEDS_OWN_PROCESS, is_settled=True)
            if own is None:
                self.lack = "trials apart"
                raise interception.AbandonedError
            choice = supervised_trials.by_trials(own, loop, order=order, job=self._job)
        if choice is None:
            self.lack = "onednn"
            raise interception.AbandonedError
        kept_choice.keep(self._checkpoint_folder, choice)
        return choice


def run(
    job: jobs.TrainingJob,
    *,
    run_fn: Callable[[fn_args_utils.FnArgs], None],
    arguments: fn_args_utils.FnArgs,
    choice: PlanChoice | None,
    checkpoint_folder: str | None,
    choose: Callable[[interception.FitCall, Loop], PlanChoice] | None = None,
    around: Callable[[_Fit], _Fit] = lambda fit: fit,
) -> record.TrainingRecord | unmeasured.Unmeasured:
    """Trains in this process; returns what was measured, or why nothing was.

    Args:
        job: what `run_fn` and `arguments` are of, with the plan to train with.
        run_fn: the user's.
        arguments: for it.
        choice: see `TrainingSession`.
        checkpoint_folder: see `TrainingSettings`.
        choose: see `TrainingSession`.
        around: makes of the measured `fit` what is called in the place of Keras'.

    Raises:
        UserError: this machine has not what the strategy of the settings takes.
        RuntimeError: `run_fn` ended without having saved a model.
    """
    settings = job.settings
    updated = settings.training.model_copy(update={"checkpoint_folder": checkpoint_folder})
    settings = settings.model_copy(update={"training": updated})
    if settings.training.seed is not None:
        either_keras.set_random_seed(settings.training.seed)
    model_run = KeptModelRun(arguments, checkpoint_folder=checkpoint_folder)
    training = session.TrainingSession(
        settings, choice=choice, choose=choose, on_anew=model_run.begin_anew
    )
    training.reserve()
    with (
        precision.policy(job.precision),
        StrategyScope(
            settings.distribution.made_strategy,
            collective_timeout_seconds=settings.distribution.collective_timeout_seconds,
        ) as scope,
        interception.intercepting_fit(scope.outside(around(training.fit))),
        evaluation.as_one_device(),
        script.inside(training),
    ):
        run_fn(model_run.begin())
    if not fileio.exists(arguments.serving_model_dir):
        raise RuntimeError(
            "Expected run_fn to save a model. Received: nothing in "
            f"serving_model_dir={arguments.serving_model_dir}."
        )
    model_run.publish()
    training.close()
    kept_choice.forget(checkpoint_folder)
    return training.record or unmeasured.Unmeasured(reason=training.gap)


def publish(
    job: jobs.TrainingJob,
    found: record.TrainingRecord | unmeasured.Unmeasured,
    *,
    strategy: StrategyChoice | None,
    model_folder: str,
    target: artifact.Artifact,
    origin: origins.Origin,
) -> None:
    """Publishes what was measured, and compiles the saved model if that is wanted.

    Args:
        job: what was trained.
        found: what `run` returned.
        strategy: what it was distributed by, if that had to be found out.
        model_folder: where the model was saved.
        target: the artifact `perf_metrics`.
        origin: for the report's header.
    """
    notes = _aot_export(model_folder, job.settings.compilation.aot_signature)
    if isinstance(found, unmeasured.Unmeasured):
        # The model is good; losing it because nothing was measured would help nobody.
        artifacts.publish_unmeasured(
            target,
            found.reason,
            title=training_report.TITLE,
            labels={"plan": f"not measured: {found.reason}"},
            origin=origin,
        )
        return
    found = scaling.held_against(found, plans.of_node(target))
    found = found.model_copy(update={"notes": (*found.notes, *notes), "strategy": strategy})
    if strategy is not None:
        found = found.after_trials(strategy.seconds)
    runs_are_planned = job.settings.schedule.planned_runs is not None
    artifacts.publish(
        target,
        found,
        file_name=record.FILE_NAME,
        figures=found.figures(),
        labels={"plan": found.trained_with, "reused_from": found.reused_from},
        page=training_report.report_on(found, runs_are_planned=runs_are_planned),
        origin=origin,
        remark=found.remark,
    )
    job.with_plan(found.plan).write(storage.path(target.uri) / jobs.FILE_NAME)


def _aot_export(folder: str, signature: str | None) -> list[str]:
    """Compiles the saved model if that is wanted; returns what came of it, in sentences."""
    if signature is None:
        return []
    try:
        return [f"compiled ahead of time: {aot_export.export(folder, signature=signature)}"]
    except errors.MeasurementError as error:  # the model is good all the same
        _LOGGER.warning("%s", error)
        return [f"not compiled ahead of time: {error}"]
