"""The catalogue of every figure tfx-perf records: key, unit, direction, meaning.

A key is written here once. Artifacts in ML Metadata, reports, the gate's rules and the
command line all look keys up in `CATALOGUE`, so that a figure has one name everywhere.
"""

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import TypeVar

from tfx_perf.core import metric_names

ValueT = TypeVar("ValueT")

RENAMED = {  # keys of earlier versions
    "host_share_ratio": "python_overhead_ratio",
    "input_fed_ratio": "input_efficiency_ratio",
    "steps_per_call": "steps_per_execution",
}


class Direction(enum.Enum):
    """Which way a metric gets better."""

    LOWER = "lower is better"
    HIGHER = "higher is better"
    NONE = "neither"


@dataclasses.dataclass(frozen=True)
class Metric:
    """One figure.

    Its key has its unit as the suffix, and is the custom property's name in MLMD. Units are
    `seconds`, `bytes`, `ratio` (0-1), `times` (a factor), `count`, `1/second`, `currency`, `loss`,
    `score` (of an evaluation), ... The gate compares only metrics that have a direction.
    """

    key: str
    unit: str
    direction: Direction
    component: str
    description: str

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value that can occur."""
        if self.unit == "loss":
            return -math.inf, math.inf
        if self.unit == "score":
            meaning = metric_names.meaning(self.key.removeprefix(EVALUATION_PREFIX))
            return meaning.bounds if meaning else (-math.inf, math.inf)
        return 0.0, 1.0 if self.unit in ("ratio", "flag") else math.inf

    @property
    def possible(self) -> tuple[float, float]:
        """The smallest and the largest value that a measurement can give.

        Those of `bounds`, except for rounding of scores, figures that are never 0, orders of
        magnitude that no machine reaches, and figures whose errors may exceed the bounds.
        """
        lowest, highest = self.bounds
        if self.unit == "score":
            return lowest - _ROUNDING, highest + _ROUNDING
        if self.key in _DIFFERENCES:
            lowest = -math.inf
        elif self.key in _ABOVE_ZERO:
            lowest = _LEAST
        if self.key in _BEYOND_ONE:
            highest = math.inf
        return lowest, min(highest, _MOST.get(self.unit, math.inf))

    @property
    def is_deterministic(self) -> bool:
        """Whether the same code on the same machine gives the same value every time."""
        return self.key in _DETERMINISTIC


_LOWER, _HIGHER, _NONE = Direction.LOWER, Direction.HIGHER, Direction.NONE
_WAYS: Mapping[str, Direction] = {"lower": _LOWER, "higher": _HIGHER, "neither": _NONE}


_ROUNDING = 1e-6  # rounding error of single precision
_LEAST = 1e-9  # a nanosecond, say
_MOST = {"seconds": 1e9, "bytes": 1e18}  # 30 years, and an exabyte
_ABOVE_ZERO = {
    "step_time_seconds", "step_time_p90_seconds", "step_time_p99_seconds", "fit_time_seconds",
    "time_to_first_step_seconds", "examples_per_second", "default_examples_per_second",
    "tuned_examples_per_second", "achieved_flops_per_second",
    "peak_flops_per_second", "peak_memory_bytes", "peak_rss_bytes", "step_peak_bytes",
    "memory_limit_bytes", "peak_memory_share_ratio",
    "cost_per_million_examples", "plan_speedup_ratio", "input_speedup_ratio",
    "replica_speedup_ratio", "replica_count", "worker_count", "host_count",
    "global_batch_size", "steps_per_execution",
}  # fmt: skip
# Differences of two measurements, each with its error.
_DIFFERENCES = {"activation_bytes", "bytes_per_example", "footprint_bytes"}
_BEYOND_ONE = {"step_time_median_error_ratio", "compile_share_ratio", "input_efficiency_ratio"}


def _of(component: str, *rows: tuple[str, str, Direction, str]) -> list[Metric]:
    return [Metric(key, unit, way, component, text) for key, unit, way, text in rows]


_METRICS = [
    *_of(
        "InputTuner",
        ("default_examples_per_second", "1/second", _HIGHER, "Input pipeline alone, TFXIO's default."),
        ("tuned_examples_per_second", "1/second", _HIGHER, "Input pipeline alone, the chosen candidate."),
        ("input_speedup_ratio", "times", _HIGHER, "Chosen candidate over the default, median of interleaved blocks."),
        ("input_training_speedup_ratio", "times", _HIGHER, "Training with the chosen input over training with the default, on the train step."),
        ("input_efficiency_ratio", "ratio", _HIGHER, "Training with the chosen input over training on one batch repeated from memory."),
        ("input_headroom_ratio", "times", _LOWER, "How many times as fast training would be if the default input cost nothing."),
        ("input_memory_bytes", "bytes", _LOWER, "Resident memory that the chosen candidate holds."),
        ("input_preparation_seconds", "seconds", _LOWER, "One-off work before the chosen candidate's first batch."),
        ("tuning_time_seconds", "seconds", _NONE, "Wall time of the whole search; of a plan that is used again, of finding out that it holds."),
        ("candidate_count", "count", _NONE, "Candidates measured, the default not counted."),
    ),
    *_of(
        "MemoryProfiler",
        ("weights_bytes", "bytes", _LOWER, "The model's variables, trainable or not."),
        ("optimizer_state_bytes", "bytes", _LOWER, "The optimizer's variables (slots and counters)."),
        ("gradients_bytes", "bytes", _LOWER, "One gradient for each trainable variable."),
        ("input_batch_bytes", "bytes", _LOWER, "One batch at the profiled batch size."),
        ("activation_bytes", "bytes", _LOWER, "Step peak less weights, optimizer state, gradients and inputs."),
        ("step_peak_bytes", "bytes", _LOWER, "Allocator's peak over a few real steps without XLA."),
        ("xla_peak_bytes", "bytes", _LOWER, "Arguments + outputs + temporaries of XLA's buffer assignment."),
        ("xla_temp_bytes", "bytes", _LOWER, "Temporaries of XLA's buffer assignment."),
        ("bytes_per_example", "bytes", _LOWER, "Growth of the step peak for each further example in a batch."),
        ("footprint_bytes", "bytes", _LOWER, "Memory of the first training steps at the module's batch size, by its own plan: growth of the resident set on a CPU, the allocator's peak on an accelerator."),
        ("largest_batch_size", "count", _HIGHER, "Largest batch whose training fits the memory limit: trained on, or smaller than one that was."),
        ("largest_batch_is_lower_bound", "flag", _NONE, "1 if larger batches may fit: no much larger batch is known to fail."),
        ("largest_trained_batch_size", "count", _NONE, "Largest batch that was trained on for a footprint."),
        ("memory_limit_bytes", "bytes", _NONE, "Memory that the prediction counts as available."),
        ("fragmentation_ratio", "ratio", _LOWER, "Share of the allocator's free bytes outside of its largest free chunk, at the peak of a step without XLA."),
    ),
    *_of(
        "OptimizedTrainer",
        ("step_time_seconds", "seconds", _LOWER, "Median time of a training step after warm-up; saving checkpoints does not count."),
        ("step_time_low_seconds", "seconds", _NONE, "Lower end of the 95% interval of the median step time."),
        ("step_time_high_seconds", "seconds", _NONE, "Upper end of the 95% interval of the median step time."),
        ("step_time_error_ratio", "ratio", _NONE, "Standard error of the mean step time over the mean, from one block of calls to the next."),
        ("step_time_median_error_ratio", "ratio", _NONE, "Standard error of the median step time over the median, from block to block."),
        ("step_time_p90_seconds", "seconds", _LOWER, "90th percentile of the step time after warm-up."),
        ("step_time_p99_seconds", "seconds", _LOWER, "99th percentile of the step time after warm-up."),
        ("examples_per_second", "1/second", _HIGHER, "Global batch size over the mean step time after warm-up."),
        ("setup_time_seconds", "seconds", _LOWER, "From the start of the user's code to its call of fit: data, model, compile()."),
        ("time_to_first_step_seconds", "seconds", _LOWER, "From the call of fit to the end of its first step, plus the tuning before it."),
        ("compile_time_seconds", "seconds", _LOWER, "Tracing and compiling the step that was used, XLA included."),
        ("trace_time_seconds", "seconds", _LOWER, "Of the compile time: running the step's Python code, all traces together."),
        ("first_batch_seconds", "seconds", _LOWER, "From a new iterator over the data to its first batch; taken after the training, with warm caches."),
        ("compile_share_ratio", "ratio", _LOWER, "Compile time over the wall time of fit."),
        ("trace_count", "count", _LOWER, "How often the step that was used was traced; more than twice, if batches change their shape."),
        ("garbage_collection_seconds", "seconds", _LOWER, "Pauses of Python's garbage collector during fit."),
        ("fit_time_seconds", "seconds", _LOWER, "Wall time of fit, plus the tuning before it."),
        ("trial_time_seconds", "seconds", _NONE, "Wall time of tuning, its process included; 0 if the plan is reused."),
        ("trial_import_seconds", "seconds", _NONE, "Of tuning: from the start of its process to the user's code."),
        ("trial_setup_seconds", "seconds", _NONE, "Of tuning: the user's code in its process, up to fit."),
        ("peak_memory_bytes", "bytes", _LOWER, "Peak during training: the accelerator's allocator, or the resident set on a CPU, with whatever the process held before."),
        ("peak_memory_share_ratio", "ratio", _LOWER, "Peak over the memory that there is: the accelerator's allocator's, or the RAM of machine or container."),
        ("peak_rss_bytes", "bytes", _LOWER, "Peak of the resident set (host memory) during training."),
        ("training_memory_bytes", "bytes", _LOWER, "Peak of what training took: the accelerator's allocator, or on a CPU the host memory that belongs to no file, less what the process held before the user's code began."),
        ("memory_growth_bytes_per_step", "bytes", _LOWER, "How fast host memory grew in the last two thirds of the training; 0 if it did not."),
        ("memory_leak", "flag", _LOWER, "1 if host memory kept growing: more than noise, more than 2%, and no slower towards the end."),
        ("flops_per_step", "count", _NONE, "Model FLOPs of a step: dots and convolutions of the unoptimized HLO, 2 per MAC; of a typical batch where they vary."),
        ("macs_per_step", "count", _NONE, "Multiply-adds of a step: half its FLOPs."),
        ("executed_flops_per_step", "count", _NONE, "FLOPs of a step that were really computed: the model's, and what is computed again."),
        ("achieved_flops_per_second", "1/second", _HIGHER, "FLOPs per step over the mean step time."),
        ("peak_flops_per_second", "1/second", _NONE, "Peak that MFU and HFU are taken against."),
        ("mfu_ratio", "ratio", _HIGHER, "Model FLOPs utilization: achieved over peak FLOPs."),
        ("hfu_ratio", "ratio", _NONE, "Hardware FLOPs utilization: as MFU, with what is computed again."),
        ("input_wait_ratio", "ratio", _LOWER, "Share of a step that disappears when one batch is repeated from memory; 0 where noise may explain it. Measured only if tuning timed plans in turns."),
        ("python_overhead_ratio", "ratio", _LOWER, "Share of the steps' time between the calls of the train function: Keras and callbacks, in Python."),
        ("step_cpu_time_seconds", "seconds", _LOWER, "CPU time of a step in all threads of its process, after warm-up; waits do not count."),
        ("energy_joules", "joules", _LOWER, "Energy of the processors and GPUs of all training hosts during fit, other users included."),
        ("energy_per_example_joules", "joules", _LOWER, "The same over the examples that were trained on."),
        ("plan_speedup_ratio", "times", _HIGHER, "Keras fit's step time over the chosen plan's, measured in tuning."),
        ("steps_per_execution", "count", _NONE, "Training steps run by one call from Python."),
        ("xla_enabled", "flag", _NONE, "1 if the step is compiled by XLA."),
        ("xla_compile_count", "count", _LOWER, "Programs that XLA compiled in fit: one for each combination of input shapes; with XLA for forward and backward pass alone, shapes that a trace leaves open count as one."),
        ("xla_compile_success_ratio", "ratio", _HIGHER, "Programs that XLA could compile over those it was given, in tuning and fit."),
        ("xla_fusion_count", "count", _NONE, "Fusions in what XLA compiled of the step."),
        ("xla_fusion_saved_bytes", "bytes", _NONE, "Intermediate results inside of fusions, which a step neither writes to memory nor reads."),
        ("communication_share_ratio", "ratio", _LOWER, "Share of a step between a replica's own gradients and their sum, without work done meanwhile; of the replica that waits least."),
        ("load_imbalance_ratio", "ratio", _LOWER, "Share of a step that replicas wait, on average, for the slowest of them."),
        ("reduced_bytes_per_step", "bytes", _LOWER, "Bytes that one replica contributes to the reductions of a step, mostly gradients."),
        ("replica_speedup_ratio", "times", _HIGHER, "Examples per second over those of the node's last run on one replica: the same code, model, batch, machine and versions."),
        ("replica_count", "count", _NONE, "Copies of the model that trained together, on all workers."),
        ("worker_count", "count", _NONE, "Processes that trained together; the figures are those of the first."),
        ("host_count", "count", _NONE, "Machines that they were on, by their addresses."),
        ("global_batch_size", "count", _NONE, "Examples in a step over all replicas."),
        ("parameter_count", "count", _NONE, "Trainable parameters."),
        ("train_step_count", "count", _NONE, "Steps that fit ran, without those of tuning."),
        ("oom_count", "count", _LOWER, "Training steps that ran out of memory and were run again in smaller slices."),
        ("micro_batches", "count", _NONE, "Slices that each batch was cut into at the end of the training."),
        ("resumed_step", "count", _NONE, "Step at which the interrupted training resumed."),
        ("checkpoint_time_seconds", "seconds", _LOWER, "Time for saving checkpoints."),
        ("train_loss", "loss", _LOWER, "Training loss of the last epoch."),
        ("validation_loss", "loss", _LOWER, "Validation loss of the last epoch."),
    ),
    *_of(
        "PerfEvaluator",
        ("rule_count", "count", _NONE, "Rules that were checked."),
        ("failed_rule_count", "count", _LOWER, "Rules that refused the model."),
        ("baseline_run_count", "count", _NONE, "Comparable blessed runs that the run was compared with."),
        ("cost_per_million_examples", "currency", _LOWER, "Price of the machines for the time that training takes for a million examples."),
    ),
]

CATALOGUE: Mapping[str, Metric] = {metric.key: metric for metric in _METRICS}

# Counted or planned, not timed or sampled: any difference is real.
_DETERMINISTIC = {
    "weights_bytes", "optimizer_state_bytes", "gradients_bytes", "input_batch_bytes",
    "xla_peak_bytes", "xla_temp_bytes", "trace_count", "oom_count", "flops_per_step",
    "parameter_count", "replica_count", "worker_count", "host_count", "global_batch_size",
    "steps_per_execution", "xla_enabled",
}  # fmt: skip

# The power of the step time that a figure is proportional to, all else being equal; comparable runs
# have the same batch size and the same FLOPs.
STEP_TIME_EXPONENTS: Mapping[str, int] = {
    "step_time_seconds": 1,
    "cost_per_million_examples": 1,
    "examples_per_second": -1,
    "mfu_ratio": -1,
}

# Shares of a step: the same time is a larger share of a shorter one.
SHARES_OF_A_STEP = (
    "input_wait_ratio", "python_overhead_ratio", "communication_share_ratio", "load_imbalance_ratio",
)  # fmt: skip

# Figures that depend on the mean step time, not on the median: they include a single stall in a
# short training.
OF_MEAN_STEP_TIME = frozenset({
    "examples_per_second", "achieved_flops_per_second", "mfu_ratio", "hfu_ratio",
    "cost_per_million_examples",
})  # fmt: skip

# Figures that tell how uncertain others are because a training has few steps.
ERROR_RATIOS: Mapping[str, str] = {
    "step_time_seconds": "step_time_median_error_ratio",
    **dict.fromkeys(OF_MEAN_STEP_TIME, "step_time_error_ratio"),
}

# Totals since a process began to train, and figures that depend on its beginning: after an
# interruption, only the last process has them, and it has traced again. Waits of replicas are among
# them because restarted replicas are far apart at first, and what is left may be short.
OF_ONE_PROCESS = frozenset({
    "time_to_first_step_seconds", "compile_time_seconds", "trace_time_seconds",
    "compile_share_ratio", "trace_count", "garbage_collection_seconds", "fit_time_seconds",
    "energy_joules", "xla_compile_count", "xla_compile_success_ratio", "oom_count",
    "checkpoint_time_seconds", "communication_share_ratio", "load_imbalance_ratio",
})  # fmt: skip

EVALUATION_PREFIX = "evaluation/"


def is_evaluation(key: str) -> bool:
    """Returns whether a key names a metric of Evaluator's output, `evaluation/NAME`."""
    return key.startswith(EVALUATION_PREFIX) and key != EVALUATION_PREFIX


def is_unread(key: str) -> bool:
    """Returns whether the name of a metric of Evaluator's does not say which way is better."""
    name = key.removeprefix(EVALUATION_PREFIX)
    return is_evaluation(key) and metric_names.meaning(name) is None


def new_key(key: str) -> str:
    """Returns the current key for that of an earlier version."""
    return RENAMED.get(key, key)


def under_new_names(figures: Mapping[str, ValueT]) -> dict[str, ValueT]:
    """Returns figures under their current keys, in place of those of earlier versions."""
    return {new_key(key): value for key, value in figures.items()}


def lookup(key: str) -> Metric:
    """Returns a figure of the catalogue, or a metric of Evaluator's output, `evaluation/NAME`.

    The direction of the latter depends on its name, and is neither if that does not say. KeyError:
    there is no such figure.
    """
    if not is_evaluation(key):
        return CATALOGUE[key]
    meaning = metric_names.meaning(key.removeprefix(EVALUATION_PREFIX))
    way = _WAYS[meaning.better] if meaning else _NONE
    return Metric(key, "score", way, "Evaluator", "A metric of Evaluator's output.")


def checked(values: Mapping[str, float | int | None]) -> dict[str, float]:
    """Returns the metrics that can be recorded, as floats; KeyError for a key of no catalogue.

    None, NaN and infinities are left out: MLMD cannot store them, and a missing figure is
    honest where a made-up one is not. Floats, because MLMD on MySQL has 32-bit integers.
    """
    unknown = sorted(set(values) - set(CATALOGUE))
    if unknown:
        raise KeyError(f"Expected keys of tfx_perf.core.metrics.CATALOGUE. Received: {unknown}")
    return {
        key: float(value)
        for key, value in values.items()
        if value is not None and math.isfinite(value)
    }
