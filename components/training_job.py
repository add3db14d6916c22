"""TrainingJob: everything needed to repeat a training, in this or another process."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import tensorflow as tf
from tfx.utils import json_utils

from tfx_perf.components import trainer_args
from tfx_perf.components.types import Artifacts
from tfx_perf.config import PerfConfig
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, interception, records
from tfx_perf.core.interception import FitCall
from tfx_perf.training.keras_api import array_data, either_keras
from tfx_perf.training.replicas import strategies
from tfx_perf.training.session import as_one_device, built_under, connect_workers
from tfx_perf.training.speedups import precision
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

FILE_NAME = "job.json"

_Fit = Callable[[FitCall], Any]


class TrainingJob(records.Record):
    """A training's code (with its digest), data and plan, by reference: valid while these exist."""

    SCHEMA: ClassVar[str] = "tfx_perf.job/1"

    inputs: str
    exec_properties: dict[str, Any]
    code: str
    plan: TrainingPlan

    @classmethod
    def of(cls, input_dict: Artifacts, exec_properties: dict[str, Any]) -> "TrainingJob":
        """Returns the job of OptimizedTrainer's inputs, with Keras' `fit` and the current code."""
        return cls(
            inputs=json_utils.dumps(input_dict),
            exec_properties=exec_properties,
            code=trainer_args.code_digest(exec_properties),
            plan=PLAIN_FIT,
        )

    def with_plan(self, plan: TrainingPlan) -> "TrainingJob":
        """Returns the same training with another plan."""
        return self.model_copy(update={"plan": plan})

    @property
    def checkpoint_folder(self) -> str | None:
        """The folder from which an interrupted training is resumed; None if nothing is kept."""
        return self.settings.training.checkpoint_folder

    def with_settings(self, section: str, **values: Any) -> "TrainingJob":
        """Returns the same training with other values in a section of its settings."""
        changed = getattr(self.settings, section).model_copy(update=values)
        config = self.settings.model_copy(update={section: changed}).to_json()
        return self.model_copy(
            update={"exec_properties": {**self.exec_properties, "config": config}}
        )

    def after_trials(self, seconds: float) -> "TrainingJob":
        """Returns the same training after trials have used `seconds` of their budget."""
        left = max(0.0, self.settings.training.tuning_seconds - seconds)
        return self.with_settings("training", tuning_seconds=left)

    @property
    def input_dict(self) -> Artifacts:
        """OptimizedTrainer's input artifacts."""
        return json_utils.loads(self.inputs)

    @property
    def settings(self) -> PerfConfig:
        """The settings in the execution properties."""
        return PerfConfig.from_json(self.exec_properties["config"])

    @property
    def expected_runs(self) -> int:
        """The number of trainings that will use a plan found now."""
        before = self.input_dict.get("previous_metrics") or ()
        return self.settings.schedule.run_count(runs_before=len(before), is_pipeline=True)

    @property
    def precision(self) -> str | None:
        """The dtype policy to build the model under; None: the user's own."""
        return precision.fixed(self.settings.training.precision) or self.plan.precision

    @property
    def is_unchanged(self) -> bool:
        """Whether the code still has the job's digest."""
        return trainer_args.code_digest(self.exec_properties) == self.code

    def run_to_fit(self, answer: _Fit, *, folder: str) -> Any:
        """Runs the user's code up to its first `fit` and returns the result of `answer`.

        That `fit` gets datasets, and one worker's part of them if several train here. The code
        writes to `folder`. Raises NoFitError if the code does not call `fit`.
        """
        distribution = self.settings.distribution
        worker_count = distribution.workers_here
        if worker_count > 1:
            connect_workers()  # before the code is imported, which may run TensorFlow
        run = trainer_args.bound_run_fn(
            self.input_dict, self.exec_properties, folder=folder, worker_count=worker_count
        )
        if self.settings.training.seed is not None:
            either_keras.set_random_seed(self.settings.training.seed)

        def on_datasets(call: FitCall) -> Any:
            with as_one_device(array_data.on_datasets(call), distribution) as (given, _):
                return answer(given)

        with contextlib.ExitStack() as scopes:
            scopes.enter_context(precision.policy(self.precision))
            fit: _Fit = on_datasets
            if worker_count > 1:
                fit = scopes.enter_context(for_all_workers(distribution))(on_datasets)
            outside = scopes.enter_context(built_under(distribution))
            return interception.capture_fit(run, outside(fit))


@contextlib.contextmanager
def for_all_workers(expected: DistributionSettings) -> Iterator[Callable[[_Fit], _Fit]]:
    """Yields a decorator of `fit` handlers that refuses models that were not built for all workers.

    `MirroredStrategy` is refused at once: it would take other workers' devices and end the process.
    """
    if not expected.delegates_training:
        yield lambda fit: fit
        return

    def refuse(*_: Any, **__: Any) -> None:
        raise errors.UserError(_expected(expected, "MirroredStrategy"))

    def checking(fit: _Fit) -> _Fit:
        def carry_out(call: FitCall) -> Any:
            strategy = call.model.distribute_strategy
            servers = expected.servers
            is_built_for_all = (
                strategies.servers_of(strategy) == servers
                if servers
                else strategies.worker_count(strategy) == expected.worker_count
            )
            if not is_built_for_all:
                raise errors.UserError(_expected(expected, strategies.describe(strategy)))
            return fit(call)

        return carry_out

    with interception.replacing(tf.distribute.MirroredStrategy, "__init__", lambda init: refuse):
        yield checking


def _expected(expected: DistributionSettings, received: str) -> str:
    strategy, who = "MultiWorkerMirroredStrategy", "each"
    if expected.servers:
        strategy, who = "ParameterServerStrategy", "the coordinator"
    return (
        f"Expected run_fn to build its model under tf.distribute.{strategy}, for "
        f"{expected.worker_count} workers. Received: {received}, with which {who} would train "
        "alone. Leave out the strategy: run_fn is run in the scope of the right one."
    )
