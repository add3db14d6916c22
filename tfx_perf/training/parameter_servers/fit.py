"""Runs `fit` where a coordinator hands out steps to workers, and servers hold the weights."""

import functools
import pathlib

from tfx_perf import errors, fingerprint, workers
from tfx_perf.interception import FitCall
from tfx_perf.settings.training import TrainingSettings
from tfx_perf.tf_internals import clusters
from tfx_perf.training.fit.fit_arguments import callback_list, in_given
from tfx_perf.training.fit.speed_watch import Promise
from tfx_perf.training.loop import Loop
from tfx_perf.training.parameter_servers import state
from tfx_perf.training.parameter_servers.fit_data import FitData
from tfx_perf.training.parameter_servers.handing_out import HandingOut
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.recovery import training_fingerprint
from tfx_perf.training.recovery.checkpoint import Checkpoint
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.recovery import FitResult
from tfx_perf.training.recovery.save_clock import SaveClock
from tfx_perf.training.recovery.saver import Saver
from tfx_perf.training.recovery.task import Task
from tfx_perf.training.team import Team


class AsynchronousFit:
    """One `fit` under a `ParameterServerStrategy`; it stands where `Recovery` stands for others.

    Attributes:
        oom_count: always 0: workers have their memory for themselves.
    """

    oom_count = 0

    def __init__(
        self,
        call: FitCall,
        loop: Loop,
        *,
        settings: TrainingSettings,
        folder: pathlib.Path | None,
        clock: SaveClock,
    ) -> None:
        """Looks for a checkpoint of this `fit`.

        Args:
            call: the user's `fit`.
            loop: of this `fit`; it gets the timer of the steps.
            settings: when to save.
            folder: where the checkpoints go, those of each training in a folder of its own; None:
                there are none.
            clock: when there was a checkpoint last.

        Raises:
            UserError: the model is one of Keras 3, or tf_keras cannot train on the data.
        """
        if loop.keras_api.package != "tf_keras":
            raise errors.UserError(
                "Expected a model of tf_keras under ParameterServerStrategy, which Keras 3 does "
                f"not support. Received: model={type(call.model).__module__}."
                f"{type(call.model).__name__}. Import tf_keras in the place of keras, or use "
                "MultiWorkerMirroredStrategy."
            )
        self._call, self._loop = call, loop
        self._settings, self._clock = settings, clock
        self._data = FitData.of(call.arguments)
        self._fingerprint = training_fingerprint.of(call, loop) if folder is not None else {}
        parts = (f"{name}={value}\n".encode() for name, value in self._fingerprint.items())
        self._store = folder and CheckpointStore(folder / fingerprint.digest(*parts))
        self._found = self._store and self._store.latest()

    @property
    def plan(self) -> TrainingPlan | None:
        """The plan of the training to go on with; None if there is none."""
        return self._found[1].plan if self._found else None

    @property
    def step(self) -> int | None:
        """The step to go on from; None if there is no training to go on with."""
        return self._found[1].step if self._found else None

    def fit(self, plan: TrainingPlan, *, promise: Promise | None = None) -> FitResult:
        """Runs `fit`.

        Args:
            plan: of which the steps per call are used; plain `fit` has the user's.
            promise: none, since there are no trials.
        """
        assert promise is None
        model, arguments = self._call.model, self._call.arguments
        if self._found:
            state.restore(model, self._found[0])
        begin, length = self.step or 0, self._data.length
        cluster = clusters.cluster_of(model.distribute_strategy)
        saver = Saver(self._task(plan))
        saver.step = begin
        passed_epochs, passed_steps = divmod(begin, length)
        handing_out = HandingOut(
            model,
            self._loop.keras_api,
            worker_count=len(cluster["worker"]),
            epoch_length=length,
            passed_steps=passed_steps,
            on_look=functools.partial(self._save_if_due, saver, plan),
        )
        self._loop.timer = handing_out.timer
        host = cluster[workers.COORDINATOR][0].rpartition(":")[0]
        callbacks = [handing_out.callback(), *callback_list(arguments["callbacks"])]
        with (
            self._data.served(host=host, step=begin) as found,
            handing_out.taken_over(steps_per_call=plan.steps_per_call),
            self._loop.keras_api.evaluating_exactly(model, shard_count=len(cluster["worker"])),
            in_given(arguments["callbacks"], callbacks, model=model) as used,
        ):
            history = self._call.proceed(
                **found,
                callbacks=used,
                initial_epoch=arguments["initial_epoch"] + passed_epochs,
            )
        return FitResult(
            history,
            handing_out.timer,
            plan=plan,
            notes=(saver.note.rstrip("."),) if saver.note else (),
            resumed_step=self.step,
            checkpoint_time_seconds=saver.seconds,
        )

    def _save_if_due(self, saver: Saver, plan: TrainingPlan, trained: int) -> None:
        step = (self.step or 0) + trained
        if saver.is_due(step, is_last=False):
            saver.save(step, functools.partial(self._fill, step, plan))

    def _fill(self, step: int, plan: TrainingPlan, folder: pathlib.Path) -> Checkpoint:
        state.save(self._call.model, folder)
        epoch, step_in_epoch = divmod(step, self._data.length)
        return Checkpoint(
            step=step,
            epoch=epoch,
            step_in_epoch=step_in_epoch,
            fingerprint=self._fingerprint,
            plan=plan,
        )

    def _task(self, plan: TrainingPlan) -> Task:
        arguments = self._call.arguments
        return Task(
            model=self._call.model,
            keras_api=self._loop.keras_api,
            epochs=arguments["epochs"],
            initial_epoch=arguments["initial_epoch"],
            epoch_length=self._data.length,
            plan=plan,
            fingerprint=self._fingerprint,
            store=self._store or None,
            team=Team(),
            clock=self._clock,
            settings=self._settings,
            watches=False,
        )
