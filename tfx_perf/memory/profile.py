"""Profiles a captured training step at several batch sizes."""

from typing import Any

import tensorflow as tf

from tfx_perf import autograph, errors, hlo, interception
from tfx_perf.config import MemoryConfig
from tfx_perf.memory import batches, breakdown, fragmentation, limit, peak, prediction
from tfx_perf.memory.record import ProfileRecord, StepMemory

_SEARCH_FACTOR = 4
_SEARCH_STEPS = 4


def profile(call: interception.FitCall, *, config: MemoryConfig) -> ProfileRecord:
    """Finds out where the memory of a training step goes.

    The model trains a few steps, so its weights change: profile in a process of its own. XLA is
    switched off for the plain steps, whatever the model was compiled with. Without configured
    batch sizes, the module's own is halved and doubled, and quadrupled further until the
    growth of the peak stands out (four times at most).

    Args:
        call: the module's `fit`, captured before it ran.
        config: batch sizes and memory share.

    Raises:
        UserError: `fit` was given data that cannot be rebatched, or none.
    """
    try:
        with autograph.tf_keras_unconverted():
            return _profile(call, config)
    except tf.errors.OperatorNotAllowedInGraphError:  # the user's code needs the conversion
        return _profile(call, config)


def _profile(call: interception.FitCall, config: MemoryConfig) -> ProfileRecord:
    dataset = batches.dataset_of(call)
    own = batches.batch_size_of(batches.first_batch(dataset))
    available = limit.memory_limit(max_utilization=config.max_device_utilization)
    call.model.jit_compile = False
    peak.run_steps(call, batches.batch_of(dataset, own))  # makes the variables
    state = breakdown.state_sizes(call.model)

    rows: list[StepMemory] = []
    peaks: dict[int, peak.StepPeak] = {}
    fragmented: dict[str, Any] = {}

    def measure(size: int) -> None:
        batch = batches.batch_of(dataset, size)
        plain, rounds = _plain_row(call, batch, size=size, state=state)
        rows.extend([plain, _xla_row(call, batch, size=size)])
        if rounds:
            peaks[size] = rounds
        if rounds and size == own:
            fragmented.update(_fragmentation(call, batch))

    sizes = sorted({own, *(config.batch_sizes or (max(1, own // 2), 2 * own))})
    for size in sizes:
        measure(size)
    for exponent in range(1, _SEARCH_STEPS + 1):
        unmeasured = len(peaks) < len(rows) // 2
        if config.batch_sizes or unmeasured or prediction.growth_stands_out(peaks):
            break
        measure(sizes[-1] * _SEARCH_FACTOR**exponent)

    line, reason = _predict(peaks)
    return ProfileRecord(
        module_batch_size=own,
        device=peak.device_name(),
        replica_count=call.model.distribute_strategy.num_replicas_in_sync,
        keras=call.original.__module__.split(".")[0],
        state=state,
        steps=tuple(rows),
        prediction=line,
        largest_batch_size=line and line.largest_batch_size(available.bytes),
        memory_limit_bytes=available.bytes,
        limit_source=available.source,
        reason=reason,
        **fragmented,
    )


def _fragmentation(call: interception.FitCall, batch: Any) -> dict[str, Any]:
    """Returns the fields on fragmentation."""
    try:
        return {"fragmentation_ratio": fragmentation.at_peak(lambda: peak.run_steps(call, batch))}
    except errors.MeasurementError as error:
        return {"fragmentation_gap": str(error)}


def _plain_row(
    call: interception.FitCall, batch: Any, *, size: int, state: breakdown.StateSizes
) -> tuple[StepMemory, peak.StepPeak | None]:
    batch_bytes = breakdown.tensor_bytes(batch)
    resident = state.weights_bytes + state.optimizer_state_bytes + batch_bytes
    row = StepMemory(plan="plain", batch_size=size, input_batch_bytes=batch_bytes)
    try:
        rounds = peak.step_peak(call, batch, resident_bytes=resident)
    except tf.errors.ResourceExhaustedError:
        return row.model_copy(update={"reason": "out of device memory"}), None
    except errors.MeasurementError as error:
        return row.model_copy(update={"reason": str(error)}), None
    figures = {"peak_bytes": rounds.bytes, "scatter_bytes": rounds.scatter_bytes}
    return row.model_copy(update=figures), rounds


def _xla_row(call: interception.FitCall, batch: Any, *, size: int) -> StepMemory:
    row = StepMemory(plan="xla", batch_size=size, input_batch_bytes=breakdown.tensor_bytes(batch))
    try:
        buffers = hlo.buffer_sizes(hlo.model_step_hlo(call.model, batch, optimized=True))
    except hlo.NotCompilable as error:
        return row.model_copy(update={"reason": str(error)})
    figures = {"peak_bytes": buffers.total_bytes, "temp_bytes": buffers.temp_bytes}
    return row.model_copy(update=figures)


def _predict(peaks: dict[int, peak.StepPeak]) -> tuple[prediction.Prediction | None, str]:
    """Returns the prediction, or why there is none."""
    if len(peaks) < 2:
        return None, "fewer than two batch sizes could be measured"
    if not prediction.growth_stands_out(peaks):
        return None, (
            f"from batch size {min(peaks)} to {max(peaks)} the peak grows no more than it varies "
            "or than can be resolved; set memory.batch_sizes further apart"
        )
    return prediction.predict(peaks), ""
