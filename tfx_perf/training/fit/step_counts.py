"""StepCounts: a training is over only if as many steps were made as were asked for and recorded."""

from collections.abc import Callable
from typing import Any

from tfx_perf import errors
from tfx_perf.training.keras_api.base_api import KerasApi


class StepCounts:
    """Compares three counts of an epoch's steps that do not know of each other.

    They are those that are recorded, those that the graphs of a plan have run, each with a batch
    from the input, and those that the optimizer has counted.
    """

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
        """Prepares to count.

        Args:
            model: that `fit` trains.
            keras_api: the model's.
            recorded: returns how many steps have been recorded.
            computed: returns how many steps the graphs have run; None if they do not know.
            others_calls: returns how often others than `fit` called the model's train function.
            length: steps that each epoch has, unless it is stopped; None if the data may end it.
        """
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
        """Begins an epoch, or goes on in it; call it before its first step.

        Args:
            step_in_epoch: the steps of it that were made before.
        """
        self._in_epoch = step_in_epoch
        self._before = {name: count() for name, count in self._counts.items()}
        self._before["others"] = self._others_calls()

    def check(self, *, is_end: bool = False) -> None:
        """Compares the counts.

        Args:
            is_end: whether the epoch has ended.

        Raises:
            StepCountError: they differ.
        """
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
                "weights are not those of the whole training. Set training.trial_budget_seconds to "
                "0, which leaves Keras its own step, train again, and report this."
            )
