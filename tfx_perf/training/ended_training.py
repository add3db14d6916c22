"""Makes the record of a training that has ended."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfx_perf.core import cache_key, statistics
from tfx_perf.core.interception import FitCall
from tfx_perf.hardware import devices, host
from tfx_perf.memory import batches, growth
from tfx_perf.tf_internals import ancestry, datasets
from tfx_perf.training import advice, model_flops
from tfx_perf.training.fit.timer import StepTimer, percentile
from tfx_perf.training.keras_api.variables import parameter_count
from tfx_perf.training.loop.fit_loop import FitLoop, FitResult
from tfx_perf.training.measuring import memory as memory_lib
from tfx_perf.training.measuring.memory import MemoryBaseline, MemoryWatch
from tfx_perf.training.record import TrainingRecord, XlaAccount
from tfx_perf.training.replicas import strategies
from tfx_perf.training.speedups import precision
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning.choice import PlanChoice, TrialRecord
from tfx_perf.xla import hlo

_PLOTTED_STEPS = 400
_OF_FIRST_BATCH = (
    "FLOPs, MFU and fusions are those of the first batch: batches have no fixed shape, and cannot "
    "be read again to find a typical one"
)
# Misleading for parameter servers, whose workers compute the steps elsewhere.
_OF_THIS_PROCESS = (
    "peak_memory_bytes",
    "peak_rss_bytes",
    "training_memory_bytes",
    "memory_growth",
    "first_batch_seconds",
)


@dataclasses.dataclass(frozen=True)
class EndedTraining:
    """A training that has ended, with the measurements made at its end."""

    call: FitCall
    choice: PlanChoice
    result: FitResult
    loop: FitLoop
    first_batch: Any  # one replica's; None if it was not kept
    measured: dict[str, Any]  # record fields measured elsewhere or at the end

    @property
    def step_count(self) -> int:
        """Steps that were trained."""
        return self.result.timer.step_count

    def record(self) -> TrainingRecord:
        """Returns the record, with advice; takes a second or more to compile the step again."""
        call, choice, result, loop = self.call, self.choice, self.result, self.loop
        timer, measured = result.timer, dict(self.measured)
        times = step_times(timer)
        batch, is_repeatable = model_flops.typical_batch(call, self.first_batch)
        mean_seconds = times["mean_step_time_seconds"]
        flops = model_flops.count_flops(call.model, batch if timer.step_count else None)
        xla = xla_account(call.model, loop, result.plan, batch)
        again = (xla and xla.executed_flops) or 0
        executed = flops.per_step and max(flops.per_step, again)
        flops = flops.without_exceeded_peak(executed, mean_seconds)
        imprecise = [] if batch is None else precision.notes(call.model, batch, loop.keras_api)
        parameters = parameter_count(call.model.trainable_weights)
        batch_size = None if batch is None else batches.batch_size_of(batch)
        strategy = call.model.distribute_strategy
        servers, is_placed = strategies.servers_of(strategy), bool(measured.get("placement"))
        if servers:
            measured |= {**dict.fromkeys(_OF_THIS_PROCESS), "memory_series": ()}
            measured |= {"energy_joules": None, "energy_gap": "the workers' hosts are not counted"}
            times |= {"python_overhead_ratio": None, "step_cpu_time_seconds": None}
        record = TrainingRecord(
            **dict(choice),
            jit_compile=bool(getattr(call.model, "jit_compile", False)),
            environment={
                **devices.describe(),
                "precision": precision.policy_name(call.model),
                **strategies.environment(strategy),
                **({"strategy": "model_parallel"} if is_placed else {}),
                "global_batch_size": str(batch_size),
                "parameter_count": str(parameters),
                # FLOPs of a batch that another run cannot find do not identify the model.
                "flops_per_step": str(flops.per_step if is_repeatable else None),
                "data_spec": cache_key.digest(batches.spec_of(call).encode()),
            },
            **times,
            **strategies.counts(strategy),
            global_batch_size=batch_size,
            parameter_count=parameters,
            train_step_count=timer.step_count,
            device_memory_bytes=None if servers else devices.memory_bytes(),
            flops_per_step=flops.per_step,
            executed_flops_per_step=executed,
            peak_flops_per_second=flops.peak_per_second,
            peak_source=flops.peak_source,
            xla=xla,
            losses=_losses(result.history),
            loss=loss_name(call.model),
            notes=(
                *result.notes,
                *imprecise,
                *filter(None, [flops.note]),
                *([f"fusions not counted: {xla.note}"] if xla and xla.note else []),
                *([] if batch is None or is_repeatable else [_OF_FIRST_BATCH]),
            ),
            resumed_step=result.resumed_step,
            checkpoint_time_seconds=result.checkpoint_time_seconds,
            **measured,
        )
        weights = call.model.trainable_weights
        advices = advice.advise(record, call.arguments["x"], weights=weights)
        return record.model_copy(update={"advice": advices})


def loss_name(model: Any) -> str:
    """Returns the name of a model's loss if its values can be checked for plausibility, else "".

    They cannot if there are several losses, a loss in the user's own code, or losses added by
    layers, which may be negative.
    """
    loss = getattr(model, "loss", None)
    if model.losses:
        return ""
    if isinstance(loss, str):
        return loss
    is_function = hasattr(loss, "__name__")
    module = (loss if is_function else type(loss)).__module__
    is_of_keras = module.partition(".")[0] in ("keras", "tf_keras")
    return str(getattr(loss, "__name__" if is_function else "name", "")) if is_of_keras else ""


def ended(
    call: FitCall,
    choice: PlanChoice,
    result: FitResult,
    *,
    loop: FitLoop,
    memory: MemoryWatch,
    held: MemoryBaseline,
    is_traced: bool,
    started: float,
    trial_trace_count: int = 0,
    **measured: Any,
) -> EndedTraining:
    """Measures what can only be measured at the end of a training.

    `held` is the memory before the user's code began, `is_traced` whether trials in this process
    traced the steps, and `started` the `time.perf_counter` when `fit` began, before its trials.
    """
    first, timer = loop.first_batch, result.timer
    traced, trace_count = loop.functions.used_by(result.plan), loop.trace_count(result.plan)
    # Measured before anything else here takes memory.
    left = choice.trial_leftover_bytes if is_traced else 0  # otherwise in another process
    peak_fields = peaks(held, memory, leftover_bytes=left)
    has_cache = bool(datasets.operations(call.arguments["x"]) & ancestry.CACHES)
    return EndedTraining(
        call,
        choice,
        result,
        loop,
        first_batch=first.batch,
        measured={
            **peak_fields,
            **memory_along(memory, timer, has_cache=has_cache),
            "time_to_first_step_seconds": timer.first_call_end and timer.first_call_end - started,
            "compile_time_seconds": _compile_seconds(
                choice.trials if is_traced else (), choice.plan, timer
            ),
            "first_batch_seconds": first.seconds,
            # All traces made by trials count as one.
            "trace_count": trace_count and max(1, trace_count - trial_trace_count),
            "trace_time_seconds": None if traced is None else traced.trace_seconds,
            "oom_count": result.oom_count,
            "micro_batches": result.plan.micro_batches,
            **measured,
        },
    )


def peaks(held: MemoryBaseline, memory: MemoryWatch, *, leftover_bytes: int) -> dict[str, Any]:
    """Returns the record's fields on the peak memory of a training that has just ended."""
    return {
        "peak_memory_bytes": memory_lib.peak_memory_bytes(),
        "peak_rss_bytes": host.resident_peak_bytes(),
        "training_memory_bytes": held.taken_beside(
            memory.peak_bytes, leftover_bytes=leftover_bytes
        ),
    }


def step_times(timer: StepTimer) -> dict[str, Any]:
    """Returns the record's fields on step times."""
    steady = timer.steady_seconds()
    return {
        "step_time": statistics.median_interval(steady) if len(steady) else None,
        "mean_step_time_seconds": timer.mean_seconds(),
        "step_time_error_ratio": statistics.mean_error_ratio(steady),
        "step_time_median_error_ratio": statistics.median_error_ratio(steady),
        "step_time_p90_seconds": percentile(steady, 90),
        "step_time_p99_seconds": percentile(steady, 99),
        "python_overhead_ratio": timer.host_share(),
        "step_cpu_time_seconds": timer.cpu_seconds(),
        "step_times": tuple(timer.series(_PLOTTED_STEPS)),
    }


def memory_along(memory: MemoryWatch, timer: StepTimer, *, has_cache: bool) -> dict[str, Any]:
    """Returns the record's fields on memory after the first call; a cache may grow, too."""
    begin = timer.first_call_end
    if begin is None:
        return {}
    samples = [sample for sample in memory.samples if sample[0] >= begin]
    settled = [sample for sample in memory.settled if sample[0] >= begin]
    times, sizes = zip(*settled, strict=True) if settled else ((), ())
    grown = growth.growth_of(times, timer.steps_at(times), sizes)
    if grown and grown.is_leak and has_cache:
        grown = None  # the first pass over the input may still fill it
    stride = max(1, len(samples) // _PLOTTED_STEPS)
    return {
        "memory_series": [(when - begin, size) for when, size in samples[::stride]],
        "memory_growth": grown,
    }


def _losses(history: Any) -> dict[str, tuple[float, ...]]:
    return {
        name: tuple(map(float, values))
        for name, values in history.history.items()
        if name.endswith("loss") and all(np.ndim(value) == 0 for value in values)
    }


def xla_account(model: Any, loop: FitLoop, plan: TrainingPlan, batch: Any) -> XlaAccount | None:
    """Returns XLA's figures for an ended training, compiled again for them; None without XLA."""
    part = None
    if not plan.uses_xla and not (plan.is_plain_fit and getattr(model, "jit_compile", False)):
        return None
    traced = loop.functions.used_by(plan)
    shapes = None if traced is None else traced.compiled_shapes
    if batch is None:
        return XlaAccount(compiled_shapes=shapes, note="no batch can be read from x")
    if plan.uses_xla:
        part, batch = loop.functions.compiled_part(plan, batch)
    try:
        before = hlo.model_step_hlo(model, batch, optimized=False, step=part)
        after = hlo.model_step_hlo(model, batch, optimized=True, step=part).hlo_module
    except hlo.NotCompilable as error:
        return XlaAccount(compiled_shapes=shapes, note=str(error))
    fusion_count, saved_bytes = hlo.count_fusions(after)
    return XlaAccount(
        compiled_shapes=shapes,
        fusion_count=fusion_count,
        fusion_saved_bytes=saved_bytes,
        # Optimized HLO no longer writes some products as dots, but has those that are recomputed.
        executed_flops=max(map(hlo.count_flops, (before, after))),
    )


def _compile_seconds(trials: Sequence[TrialRecord], plan: TrainingPlan, timer: StepTimer) -> float:
    for record in trials:
        if record.plan == plan and record.compile_time_seconds is not None:
            return record.compile_time_seconds
    return timer.compile_seconds()
