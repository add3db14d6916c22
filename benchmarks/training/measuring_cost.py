"""The cost of measuring a training: the same training with and without it, in turns.

Run with `python -m benchmarks.training.measuring_cost`.
"""

import contextlib
import gc
import time
from typing import Any
from unittest import mock

import click
import numpy as np
import tensorflow as tf

from tfx_perf.core import formatting, interception, statistics
from tfx_perf.hardware import energy
from tfx_perf.training.fit.timer import StepTimer
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.measuring import collector
from tfx_perf.training.speedups.plan import TrainingPlan

_BATCH_SIZE, _WIDTH = 32, 16
# Steps in an epoch by steps per execution; few, so that the host's load affects both of a pair.
_STEPS = {1: 300, 50: 3_000}
_PLAIN_STEP_SECONDS = 1.0  # above any step here, so that no plan is dropped as slow


@click.command()
@click.option("--rounds", metavar="N", default=60, show_default=True, help="Trainings of each.")
def main(*, rounds: int) -> None:
    """Times a model of two small layers, the worst case, on a batch in memory."""
    for steps_per_execution, steps in _STEPS.items():
        with_it, without = _turns(steps_per_execution, steps, rounds)
        cost = statistics.ratio_interval(with_it, without)
        click.echo(
            f"{steps_per_execution} steps per execution: "
            f"{formatting.format_seconds(np.median(without))} a step; "
            f"measuring costs {cost.value - 1:+.2%} "
            f"(95% interval {cost.low - 1:+.2%} to {cost.high - 1:+.2%})"
        )


def _turns(steps_per_execution: int, steps: int, rounds: int) -> tuple[list[float], list[float]]:
    """Returns the seconds per step of each round, with and without measuring."""
    plan = TrainingPlan(steps_per_execution=steps_per_execution, fused_update=True)
    epochs: list[float] = []
    call = _fit_call(steps, epochs)
    loop = FitLoop(call)
    loop.prepare()
    seconds: tuple[list[float], list[float]] = [], []
    kinds = [(seconds[0], True), (seconds[1], False)]
    for index in range(rounds + 1):
        kinds.reverse()  # alternates which kind comes second
        for own, is_measured in kinds:
            epochs.clear()
            if is_measured:
                with collector.spared(), energy.counted():
                    loop.fit(plan, plain_step_seconds=_PLAIN_STEP_SECONDS)
            else:
                with _frozen(), mock.patch.multiple(StepTimer, **_UNTIMED):
                    loop.fit(plan)
            if index:  # the first round traces
                own.append(epochs[-1] / steps)
    return seconds


def _fit_call(steps: int, epochs: list[float]) -> interception.FitCall:
    """Returns a `fit` of two epochs that records how many seconds each takes."""
    from tf_keras import Sequential, callbacks, layers

    model = Sequential([layers.Input((_WIDTH,)), layers.Dense(_WIDTH, "relu"), layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    batch = tf.ones((_BATCH_SIZE, _WIDTH)), tf.ones((_BATCH_SIZE, 1))
    began = 0.0

    def begin(epoch: int, logs: Any = None) -> None:
        nonlocal began
        began = time.perf_counter()

    clock = callbacks.LambdaCallback(
        on_epoch_begin=begin,
        on_epoch_end=lambda epoch, logs=None: epochs.append(time.perf_counter() - began),
    )
    return interception.capture_fit(
        lambda: model.fit(
            tf.data.Dataset.from_tensors(batch).repeat(),
            steps_per_epoch=steps,
            epochs=2,
            verbose=0,
            callbacks=[clock],
        )
    )


def _count(timer: StepTimer, steps: int, logs: Any = None) -> None:
    timer._done += steps


_UNTIMED: dict[str, Any] = {"begin_call": lambda timer: None, "end_call": _count}


@contextlib.contextmanager
def _frozen() -> Any:
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


if __name__ == "__main__":
    main()
