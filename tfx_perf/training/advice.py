"""Advice based on a training's figures."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tfx_perf.core import formatting
from tfx_perf.core.records import Advice
from tfx_perf.input.record import DEFAULT
from tfx_perf.tf_internals import datasets
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.tuning.choice import TrialRecord

_WAIT_SHARE = 0.1  # of a step
_UNMEASURED_WAIT_SHARE = 0.3  # of a step, by the few steps of a check
_HOST_SHARE = 0.1  # of a step
_COMMUNICATION_SHARE = 0.3  # of a step
_IMBALANCE = 0.1  # of a step
_START_SHARE = 0.2  # of fit
_PAUSE_SHARE = 0.02  # of fit
_SHOWN_SHAPES = 5
_FEW_TRACES = 2  # the first one, and one for a smaller last batch
_TAIL = 5.0  # 99th percentile over the median
_WIDTH = 16  # vector registers, cache lines and tensor cores hold this many values, or a multiple
_LARGE_WIDTH = 64  # of large kernels; smaller widths are numbers of classes, which are given
_LARGE_KERNEL = 2**16  # entries; smaller ones take no time
_KERNEL_SHARE = 0.1  # of all kernels' entries
_PYTHON_OPS = ("PyFunc", "EagerPyFunc", "GeneratorDataset")


def advise(record: TrainingRecord, data: Any, *, weights: Sequence[Any] = ()) -> tuple[Advice, ...]:
    """Returns advice on what to change; empty if the figures give no reason."""
    remarks = (*_figure_remarks(record, data), *_width_remarks(weights))
    return tuple(Advice(code=code, message=text) for code, text in remarks)


def _figure_remarks(record: TrainingRecord, data: Any) -> Iterator[tuple[str, str]]:
    figures = {key: value or 0.0 for key, value in record.figures().items()}
    shown = {key: formatting.format_value(key, value) for key, value in figures.items()}
    waits = figures["input_wait_ratio"] > _WAIT_SHARE
    if waits:
        remedy = _input_remedy(record.key.get("input"))
        yield "input_bound", f"{shown['input_wait_ratio']} of a step waits for the input: {remedy}"
    elif record.input_wait_ratio is None and (checked := _checked_step_seconds(record)):
        step_seconds = figures["step_time_seconds"] or checked
        rest = 1 - checked / step_seconds - figures["python_overhead_ratio"]
        if waits := rest > _UNMEASURED_WAIT_SHARE:
            yield (
                "input_bound",
                f"A step took {shown['step_time_seconds']}, and "
                f"{formatting.format_seconds(checked)} with batches in memory. It probably waits "
                f"for the input: {_input_remedy(record.key.get('input'))}",
            )
    used = datasets.operations(data) if waits else set()  # the graph may hold all of the data
    python = [name for name in _PYTHON_OPS if name in used]
    if python:
        yield (
            "python_in_input",
            f"The input runs Python code for every element ({', '.join(python)}), one at a time: "
            "write it with TensorFlow's operations, or do it once, in Transform.",
        )
    shapes = (record.xla and record.xla.compiled_shapes) or ()
    if max(figures["trace_count"], len(shapes)) > _FEW_TRACES:
        listed = f" ({'; '.join(shapes[:_SHOWN_SHAPES])})" if shapes else ""
        times = shown["xla_compile_count"] if shapes else shown["trace_count"]
        yield (
            "many_shapes",
            f"The step was {'compiled' if shapes else 'traced'} {times} times, because batches "
            f"come in different shapes or types{listed}: batch with drop_remainder=True, pad to a "
            "few fixed lengths.",
        )
    if figures["python_overhead_ratio"] > _HOST_SHARE:
        yield (
            "host_bound",
            f"{shown['python_overhead_ratio']} of the steps' time passes in Python, "
            "between calls of the train function. "
            f"{_call_remedy(record.plan.steps_per_execution or 1)}",
        )
    yield from _replica_remarks(record, shown)
    if record.oom_count and not record.plan.gradient_checkpointing:
        yield (
            "activations",
            f"{record.oom_count} steps ran out of memory and were run again in micro-batches: "
            "with training.gradient_checkpointing=auto most activations are computed twice instead "
            "of kept.",
        )
    lost_seconds = record.trial_time_seconds - record.traced_in_trials_seconds
    if lost_seconds > _START_SHARE * record.fit_time_seconds:
        yield (
            "long_trials",
            f"{shown['trial_time_seconds']} of {shown['fit_time_seconds']} were trials. "
            f"{_trial_remedy(record.is_settled)}",
        )
    elif figures["compile_share_ratio"] > _START_SHARE:
        yield (
            "long_compilation",
            f"{shown['compile_share_ratio']} of fit was tracing and compiling: in a longer "
            "training it is a smaller share.",
        )
    if figures["step_time_p99_seconds"] > _TAIL * (figures["step_time_seconds"] or 1e9):
        yield (
            "uneven_steps",
            f"One step in a hundred takes {shown['step_time_p99_seconds']} or more, the median "
            f"{shown['step_time_seconds']}: look for callbacks, checkpoints and input that comes "
            "in bursts.",
        )
    if record.memory_growth and record.memory_growth.is_leak:
        yield (
            "memory_leak",
            f"Memory kept growing by {shown['memory_growth_bytes_per_step']} a step, and no slower "
            "towards the end. Callbacks that keep tensors, logs or batches, operations that Python "
            "adds to a graph for every batch, and generators in the input are the usual causes.",
        )
    if figures["garbage_collection_seconds"] > _PAUSE_SHARE * record.fit_time_seconds:
        yield (
            "garbage_collection",
            f"Python's garbage collector took {shown['garbage_collection_seconds']}: callbacks "
            "that keep objects, or build many, are the usual cause.",
        )


def _checked_step_seconds(record: TrainingRecord) -> float | None:
    """Returns the step time of the plan in its check, which reads batches from memory."""
    times = (each.step_time for each in record.trials if each.plan == record.plan)
    return next((each.value for each in times if each and each.sample_count == 1), None)


def _input_remedy(tuned: str | None) -> str:
    if not tuned:
        return (
            "in a pipeline tune it with InputTuner; in a script add cache() behind what is slow, "
            "and num_parallel_calls=tf.data.AUTOTUNE to map()."
        )
    if tuned == DEFAULT:  # nothing was faster, or the search failed
        known, shown = "InputTuner has left it as it is", "why"
    else:
        known, shown = f"it is InputTuner's choice already ({tuned})", "what else was tried"
    return (
        f"{known}; its report says {shown} and, if its time budget sufficed for that, where the "
        "default's time goes."
    )


def _call_remedy(steps_per_execution: int) -> str:
    if steps_per_execution > 1:
        return f"A call has {steps_per_execution} steps already: look for slow callbacks."
    return (
        "More steps can be run in a call if no callback acts on every batch, and where training is "
        "long enough for trials (schedule.expected_runs)."
    )


def _trial_remedy(is_settled: bool) -> str:
    if is_settled:
        return (
            "The next run uses this plan without trials: a script with the same folder, or an "
            "OptimizedTrainer with previous_metrics (of latest_metrics)."
        )
    return (
        "The next run makes trials again, because these did not reach a final decision: see the "
        "first lines, the table and the notes. training.tuning_seconds limits their time; 0 "
        "disables them."
    )


def _replica_remarks(record: TrainingRecord, shown: dict[str, str]) -> Iterator[tuple[str, str]]:
    account = record.communication
    if account is None:
        return
    if account.communication_share > _COMMUNICATION_SHARE:
        size = shown["reduced_bytes_per_step"]
        here = ". Processes of one machine share its cores: leave distribution.workers out"
        others = here if record.host_count == 1 else ", and so does a faster network"
        remedy = others if record.worker_count > 1 else ""
        yield (
            "communication_bound",
            f"{shown['communication_share_ratio']} of a step passes between the gradients and "
            f"their sum over the replicas, {size} of each: a larger batch for each replica makes "
            f"the share smaller{remedy}.",
        )
    if account.load_imbalance > _IMBALANCE and account.slowest is not None:
        slowest = account.replicas[account.slowest]
        several = record.worker_count > 1
        who = f"worker {slowest.worker}" if several else f"replica {account.slowest}"
        yield (
            "load_imbalance",
            f"{shown['load_imbalance_ratio']} of a step the replicas wait for {who}: look for a "
            "slower or busier machine, and for data that are divided unevenly.",
        )


def _width_remarks(weights: Sequence[Any]) -> Iterator[tuple[str, str]]:
    kernels = [
        (str(getattr(each, "path", each.name).partition(":")[0]), each.shape)
        for each in weights
        if len(each.shape) > 1
    ]
    sizes = {name: math.prod(shape) for name, shape in kernels if "embedding" not in name}
    least = max(_LARGE_KERNEL, _KERNEL_SHARE * sum(sizes.values()))
    uneven = [
        f"{name} {shape[-1]:,} ({-(-shape[-1] // _LARGE_WIDTH) * _LARGE_WIDTH:,})"
        for name, shape in kernels
        if sizes.get(name, 0) >= least and shape[-1] >= _LARGE_WIDTH and shape[-1] % _WIDTH
    ]
    if uneven:
        yield (
            "alignment",
            f"Widths of large layers, with the next multiples of {_LARGE_WIDTH}: "
            f"{', '.join(uneven)}. Processors usually multiply matrices of such widths faster, "
            "those with tensor cores most of all: compare the steps with both.",
        )


def reasons_for_own(record: TrainingRecord) -> list[str]:
    """Returns a sentence for each other precision tried, on why the model keeps its own."""
    if record.plan.precision is not None:
        return []
    precision = record.environment.get("precision", "the model's own precision")
    names = dict.fromkeys(each.plan.precision for each in record.trials if each.plan.precision)
    return [f"{precision} stays: {name} {_outcome(name, record.trials)}." for name in names]


def _outcome(name: str, trials: Sequence[TrialRecord]) -> str:
    tried = [each for each in trials if each.plan.precision == name]
    ratios = [ratio for each in tried for ratio in _ratios(each, trials)]
    if ratios:
        return f"is {max(ratios):.2f} times as fast"
    # A trial that ran says more than one that did not.
    first = min(tried, key=lambda each: each.status == "untried")
    return f"was not chosen ({first.reason})"


def _ratios(trial: TrialRecord, trials: Sequence[TrialRecord]) -> Iterator[float]:
    """Yields step times in the model's own precision over those of the same plan in another."""
    if trial.status != "slower" or trial.step_time is None:
        return
    own_plan = trial.plan.model_copy(update={"precision": None})
    for trial_before in trials:
        if trial_before.plan == own_plan and trial_before.step_time is not None:
            yield trial_before.step_time.value / trial.step_time.value
