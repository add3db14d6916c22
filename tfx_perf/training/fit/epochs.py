"""Evaluates in `fit`, and checks that each epoch has as many steps as it should."""

import math
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
        self._in_epoch = 0  # steps of the epoch that were run before this process
        self._before: dict[str, int] = {}

    def begin(self, *, step_in_epoch: int = 0) -> None:
        """Begins or resumes an epoch; call it before the first step."""
        self._in_epoch = step_in_epoch
        self._before = {name: count() for name, count in self._counts.items()}
        self._before["others"] = self._others_calls()

    def check(self, *, is_end: bool = False) -> None:
        """Raises a StepCountError if the counts differ."""
        if not self._before:
            return
        counted = {name: count() - self._before[name] for name, count in self._counts.items()}
        recorded, others = counted["recorded"], self._others_calls() - self._before["others"]
        if (others or self._length is None) and "optimizer" in counted:
            # The optimizer also counts others' steps, and those of a call in which the data end.
            counted["optimizer"] = min(counted["optimizer"], recorded)
        if self._model.optimizer is not self._optimizer:  # the steps may not use the new one
            counted.pop("optimizer", None)
        if is_end:
            self._before = {}  # until the next epoch: callbacks may train now
        is_whole = is_end and self._length is not None and not self._model.stop_training
        expected = self._length - self._in_epoch if is_whole and self._length else recorded
        if any(count != expected for count in counted.values()):
            counts = ", ".join(f"{name}_steps={count}" for name, count in counted.items())
            raise errors.StepCountError(
                f"Expected {expected} training steps in this epoch. Received: {counts}. The "
                "weights are not those of the whole training. Set training.tuning_seconds to "
                "0, which leaves Keras its own step, train again, and report this."
            )


class TestFunction:
    """The test function of `fit`'s evaluations, traced once for all of a model's evaluations."""

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
        data, steps = arguments["validation_data"], arguments["validation_steps"]
        self._length = length_of(data, steps)
        self.steps_per_execution = most_steps_per_execution
        if self._length is None:
            self.steps_per_execution = 1  # it is unknown where to cut a call short
        elif self._keras_api.overcounts and steps:
            self._count_as_keras_3(steps, length_of(data, None), most=most_steps_per_execution)

    def begin(self) -> None:
        """Begins an evaluation."""
        self._countdown.begin(self._length)

    def __call__(self, iterator: Any) -> Any:
        """Runs a call's steps; raises OutOfRangeError if the data end early."""
        assert self._function is not None
        return self._function.run(iterator, self._countdown.take(self.steps_per_execution))

    def retrace(self) -> None:
        """Makes the next call retrace the steps, because the model was compiled again."""
        if self._function is not None:
            self._function.retrace()

    def _count_as_keras_3(self, steps: int, batches: int | None, *, most: int) -> None:
        """Evaluates the same batches as Keras 3, in as many steps per execution as possible.

        Keras 3 runs whole calls of the steps per execution given to `compile`, whatever
        `validation_steps` says. Once it has counted all batches, it restarts the data, which
        shuffles them again; a short last call counts as a full one.
        """
        users_steps = self._keras_api.get_steps_per_execution(self._model)

        def counted(per_call: int) -> int:
            return -(-steps // per_call) * per_call

        whole, every = counted(users_steps), batches or math.inf
        self._length = length = int(min(whole, every))
        alike = (
            number
            for number in range(most, 1, -1)
            if counted(number) >= length and (counted(number) >= every) is (whole >= every)
        )
        self.steps_per_execution = next(alike, users_steps)
