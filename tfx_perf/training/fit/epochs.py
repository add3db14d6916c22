"""Evaluates in `fit`, and checks that each epoch has as many steps as it should."""

from collections.abc import Callable
from typing import Any

from tfx_perf.core import errors
from tfx_perf.training.fit.fit_arguments import length_of
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.step.step_runner import EpochStepCounter
from tfx_perf.training.step.steps import MultiStep


class StepCounts:
    """Compares three counts of an epoch's steps: recorded, run by graphs, and the optimizer's."""

    def __init__(
        self,
        model: Any,
        keras_api: KerasApi,
        *,
        recorded: Callable[[], int],
        computed: Callable[[], int] | None,
        others_calls: Callable[[], int],
        length: int | None,
    ) -> None:
        self._model, self._optimizer = model, model.optimizer
        self._counts = {"recorded": recorded}
        if computed is not None:
            self._counts["computed"] = computed
        if keras_api.optimizer_counts_steps(model):
            self._counts["optimizer"] = lambda: int(self._optimizer.iterations.numpy())
        self._others_calls = others_calls
        self._length = length
        self._in_epoch = 0  # steps of the epoch that were made before this process
        self._before: dict[str, int] = {}

    def begin(self, *, step_in_epoch: int = 0) -> None:
        """Begins an epoch, or goes on in it; call it before its first step."""
        self._in_epoch = step_in_epoch
        self._before = {name: count() for name, count in self._counts.items()}
        self._before["others"] = self._others_calls()

    def check(self, *, is_end: bool = False) -> None:
        """Raises a StepCountError if the counts differ."""
        if not self._before:
            return
        found = {name: count() - self._before[name] for name, count in self._counts.items()}
        recorded, others = found["recorded"], self._others_calls() - self._before["others"]
        if (others or self._length is None) and "optimizer" in found:
            # Others' steps count, too; so do those of a call in which the data end.
            found["optimizer"] = min(found["optimizer"], recorded)
        if self._model.optimizer is not self._optimizer:  # of which the steps may know nothing
            found.pop("optimizer", None)
        if is_end:
            self._before = {}  # until the next epoch: callbacks may train now
        is_whole = is_end and self._length is not None and not self._model.stop_training
        expected = self._length - self._in_epoch if is_whole and self._length else recorded
        if any(count != expected for count in found.values()):
            counts = ", ".join(f"{name}_steps={count}" for name, count in found.items())
            raise errors.StepCountError(
                f"Expected {expected} training steps in this epoch. Received: {counts}. The "
                "weights are not those of the whole training. Set training.tuning_seconds to "
                "0, which leaves Keras its own step, train again, and report this."
            )


class TestFunction:
    """The test function of the evaluations that `fit` makes, traced once for all of a model's."""

    def __init__(self, model: Any, keras_api: KerasApi) -> None:
        self._model, self._keras_api = model, keras_api
        self._function: MultiStep | None = None
        self._countdown = EpochStepCounter()
        self._length: int | None = None  # steps of an evaluation
        self.steps_per_execution = 1

    def begin_fit(self, arguments: dict[str, Any], *, most_steps_per_execution: int) -> None:
        """Begins a `fit` with these arguments."""
        if self._function is None:
            self._function = MultiStep(self._model, self._keras_api, method="test_step")
        self._length = length_of(arguments["validation_data"], arguments["validation_steps"])
        self.steps_per_execution = self._steps_per_execution(
            arguments, most=most_steps_per_execution
        )

    def begin(self) -> None:
        """Begins an evaluation."""
        self._countdown.begin(self._length)

    def __call__(self, iterator: Any) -> Any:
        """Runs a call's steps; raises OutOfRangeError if the data end before."""
        assert self._function is not None
        return self._function.run(iterator, self._countdown.take(self.steps_per_execution))

    def retrace(self) -> None:
        """Makes the next call trace the steps anew, because the model was compiled anew."""
        if self._function is not None:
            self._function.retrace()

    def _steps_per_execution(self, arguments: dict[str, Any], *, most: int) -> int:
        data, steps = arguments["validation_data"], arguments["validation_steps"]
        if self._length is None:
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
