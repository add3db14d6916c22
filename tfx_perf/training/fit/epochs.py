"""Epochs: tells our train and test functions where epochs and evaluations begin."""

from typing import Any

from tfx_perf.training.fit.fit_arguments import length_of
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.step.steps import MultiStep
from tfx_perf.training.step.traced_steps import Countdown, TracedSteps


class Epochs:
    """The countdowns of one model's `fit`, and its test function.

    Attributes:
        training: counts the steps of the running epoch.
    """

    def __init__(self, model: Any, keras_api: KerasApi) -> None:
        self.training = Countdown()
        self._testing = Countdown()
        self._model = model
        self._keras_api = keras_api
        self._test: MultiStep | None = None

    def counting(self, length: int | None) -> Any:
        """Returns the callback that begins every epoch, for a `fit` with Keras' own functions.

        Args:
            length: steps of an epoch, None if unknown.
        """
        return self._keras_api.callback(
            on_epoch_begin=lambda epoch, logs=None: self.training.begin(length)
        )

    def evaluating(self, arguments: dict[str, Any], plan: TrainingPlan) -> TracedSteps | None:
        """Returns the test function of a `fit`; None if Keras' own evaluates.

        Args:
            arguments: of `fit`.
            plan: of the training.
        """
        if plan.is_plain_fit:
            return None
        return self._test_function(self._test_steps_per_call(arguments, most=plan.steps_per_call))

    def evaluations(self, arguments: dict[str, Any]) -> Any:
        """Returns the callback that begins every evaluation, for a `fit` with our test function.

        Args:
            arguments: of `fit`.
        """
        length = length_of(arguments["validation_data"], arguments["validation_steps"])
        return self._keras_api.callback(
            on_test_begin=lambda logs=None: self._testing.begin(length)
        )

    def retrace(self) -> None:
        """Has the test function be traced anew, for the model was compiled anew."""
        if self._test is not None:
            self._test.retrace(self._model.test_step)

    def _test_steps_per_call(self, arguments: dict[str, Any], *, most: int) -> int:
        """Returns how many steps of an evaluation a call takes.

        Args:
            arguments: of `fit`.
            most: steps of a training call.
        """
        data, steps = arguments["validation_data"], arguments["validation_steps"]
        if length_of(data, steps) is None:
            return 1  # nobody knows where to cut a call short
        batches = length_of(data, None)
        if not (self._keras_api.overcounts and steps and batches):
            return most
        # Keras 3 begins the data anew, which shuffles them once more, where it has counted all
        # batches; a short last call counts as a full one.
        users_steps = self._keras_api.get_steps_per_execution(self._model)

        def counts_all(per_call: int) -> bool:
            return -(-steps // per_call) * per_call >= batches

        alike = (n for n in range(most, 1, -1) if counts_all(n) == counts_all(users_steps))
        return next(alike, 1)

    def _test_function(self, steps_per_call: int) -> TracedSteps:
        if self._test is None:
            model, keras_api = self._model, self._keras_api
            self._test = MultiStep(
                model.test_step,
                model,
                keras_api=keras_api,
                counter=keras_api.step_counters(model).test,
                has_own_logs=keras_api.has_own_logs(model, "test_step"),
            )
        return TracedSteps(self._test, countdown=self._testing, steps_per_call=steps_per_call)
