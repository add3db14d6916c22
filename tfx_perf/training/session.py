"""TrainingSession: carries out the user's `fit` with the best measured plan."""

import logging
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf import config, statistics
from tfx_perf.hardware import devices
from tfx_perf.interception import FitCall
from tfx_perf.training import meters
from tfx_perf.training.eligibility import obstacle
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import PLAIN_FIT
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.timer import StepTimer, percentile
from tfx_perf.training.trials import TrialResult, Trials, in_one_line

_PLOTTED_STEPS = 400
_KERAS_BATCH_SIZE = 32  # what fit takes for arrays if nothing is given

_LOGGER = logging.getLogger(__name__)


class TrainingSession:
    """The handler to give to `interception.intercepting_fit`.

    Example:
        >>> session = TrainingSession(PerfConfig())
        >>> with intercepting_fit(session.fit):
        ...     run_fn(fn_args)
        >>> session.record.figures()["examples_per_second"]
    """

    def __init__(self, settings: config.PerfConfig) -> None:
        """Starts a session with `settings.training` and `settings.compilation`."""
        self._settings = settings
        self._records: list[TrainingRecord] = []

    @property
    def record(self) -> TrainingRecord | None:
        """The `fit` with the most steps; None before the first."""
        return max(self._records, key=lambda record: record.train_step_count, default=None)

    def fit(self, call: FitCall) -> Any:
        """Carries out `call` and measures it; returns Keras' History."""
        started = time.perf_counter()
        loop = Loop(call)
        result = self._choose(call, loop)
        trial_seconds = time.perf_counter() - started
        meters.reset_peak_memory()
        if result.plan.is_plain_fit and not result.records:
            history, timer = loop.observe()
        else:
            history, timer = loop.fit(result.plan)
        fit_seconds = time.perf_counter() - started
        try:
            record = self._measured(
                call,
                result,
                timer,
                history=history,
                started=started,
                fit_time_seconds=fit_seconds,
                trial_time_seconds=trial_seconds,
            )
        except Exception:  # the model is trained; losing it would help nobody
            _LOGGER.warning("The training could not be measured.", exc_info=True)
        else:
            self._records.append(record)
        return history

    def _choose(self, call: FitCall, loop: Loop) -> TrialResult:
        """Returns the plan; whatever goes wrong, plain fit trains on."""
        if not self._settings.training.trial_budget_seconds:
            return _plain("trials are off")
        reason = obstacle(call, loop)
        if reason:
            return _plain(reason)
        try:
            return Trials(
                call,
                loop,
                training=self._settings.training,
                compilation=self._settings.compilation,
            ).run()
        except Exception as error:  # the user's training must not depend on ours
            _LOGGER.warning("Trials failed; training with plain fit.", exc_info=True)
            return _plain(f"the trials failed: {in_one_line(error)}")

    def _measured(
        self,
        call: FitCall,
        result: TrialResult,
        timer: StepTimer,
        *,
        history: Any,
        **seconds: float,
    ) -> TrainingRecord:
        # Before anything else of ours takes memory.
        peak_memory_bytes, peak_rss_bytes = meters.peak_memory_bytes(), meters.peak_rss_bytes()
        steady = timer.steady_seconds()
        batch = _one_batch(call.arguments)
        flops = meters.count_flops(call.model, batch)
        series = timer.series()
        stride = max(1, len(series) // _PLOTTED_STEPS)
        started = seconds.pop("started")
        parameters = sum(int(tf.size(weight)) for weight in call.model.trainable_weights)
        batch_size = _batch_size(batch)
        return TrainingRecord(
            plan=result.plan,
            jit_compile=bool(getattr(call.model, "jit_compile", False)),
            plan_reason=result.reason,
            trials=result.records,
            environment={
                **devices.describe(),
                "strategy": type(call.model.distribute_strategy).__name__,
                "global_batch_size": str(batch_size),
                "parameter_count": str(parameters),
                "flops_per_step": str(flops.per_step),
            },
            step_time=statistics.median_interval(steady) if steady else None,
            mean_step_time_seconds=float(np.mean(steady)) if steady else None,
            step_time_p90_seconds=percentile(steady, 90),
            step_times=tuple(series[::stride]),
            global_batch_size=batch_size,
            parameter_count=parameters,
            train_step_count=timer.step_count,
            time_to_first_step_seconds=(
                timer.first_call_end - started if timer.first_call_end else None
            ),
            compile_time_seconds=_compile_seconds(result, timer),
            peak_memory_bytes=peak_memory_bytes,
            peak_rss_bytes=peak_rss_bytes,
            flops_per_step=flops.per_step,
            peak_flops_per_second=flops.peak_per_second,
            peak_source=flops.peak_source,
            input_wait_ratio=result.input_wait_ratio,
            losses={
                name: tuple(map(float, values))
                for name, values in history.history.items()
                if name.endswith("loss")
            },
            notes=(flops.note,) if flops.note else (),
            **seconds,
        )


def _plain(reason: str) -> TrialResult:
    return TrialResult(PLAIN_FIT, reason)


def _compile_seconds(result: TrialResult, timer: StepTimer) -> float:
    """Returns what tracing and compiling the used functions cost, in the trials or in fit."""
    for record in result.records:
        if record.plan == result.plan and record.compile_time_seconds is not None:
            return record.compile_time_seconds
    steady = timer.steady_seconds()
    ordinary = timer.first_call_steps * (percentile(steady, 50) or 0.0)
    return max(0.0, timer.first_call_seconds - ordinary)


def _one_batch(arguments: dict[str, Any]) -> Any:
    """Returns a batch as `train_step` gets it, None if the data are of an unusual kind."""
    x, y, weight = arguments["x"], arguments["y"], arguments["sample_weight"]
    if isinstance(x, tf.data.Dataset):
        return next(iter(x))
    arrays = (x,) if y is None else (x, y) if weight is None else (x, y, weight)
    if not all(isinstance(array, (np.ndarray, tf.Tensor)) for array in tf.nest.flatten(arrays)):
        return None
    size = arguments["batch_size"] or _KERAS_BATCH_SIZE
    return tf.nest.map_structure(lambda array: tf.convert_to_tensor(array[:size]), arrays)


def _batch_size(batch: Any) -> int | None:
    """Returns the length of the first tensor's first dimension."""
    for tensor in tf.nest.flatten(batch):
        if tensor is not None and tensor.shape.rank:
            return int(tensor.shape[0])
    return None
