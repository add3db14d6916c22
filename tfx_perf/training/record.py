"""TrainingRecord: everything that was measured about one training."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tfx_perf.core import formatting, metrics, records, statistics
from tfx_perf.core.records import Advice
from tfx_perf.memory.growth import MemoryGrowth
from tfx_perf.training.measuring.accounts import CommunicationAccount, Placement, RunBefore
from tfx_perf.training.tuning.choice import PlanChoice

FILE_NAME = "metrics.json"

_WARM_UP_STEPS = 20
_QUANTILES = 41  # every 2.5%


class XlaAccount(records.Record):
    """XLA's side of a training."""

    compiled_shapes: tuple[str, ...] | None  # one program each; None if Keras compiles its own step
    fusion_count: int | None = None  # see `hlo.count_fusions`; None without HLO
    fusion_saved_bytes: int | None = None
    executed_flops: int | None = None  # of the compiled part, including recomputed ones
    note: str = ""  # why there is no HLO


class TrainingRecord(PlanChoice):
    """One training, measured, with the choice of its plan; the payload of PerfMetrics.

    Fields without a comment are described by `PlanChoice` or as catalogue metrics.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.training/1"
    REMOVED: ClassVar = PlanChoice.REMOVED | {"crowding", "misalignments", "unbound"}
    RENAMED: ClassVar[Mapping[str, str]] = {
        **PlanChoice.RENAMED,
        "host_share_ratio": "python_overhead_ratio",
    }

    jit_compile: bool = False  # whether XLA compiles Keras' own step
    environment: dict[str, str]  # must be equal for two runs to be comparable
    step_time: statistics.Interval | None  # seconds, median after warm-up; None: too few steps
    mean_step_time_seconds: float | None  # gives the throughput: the median hides rare waits
    step_time_error_ratio: float | None = None  # of the mean; None for fewer than two calls
    step_time_median_error_ratio: float | None = None  # of the median; None likewise
    step_time_p90_seconds: float | None
    step_time_p99_seconds: float | None = None
    step_times: tuple[tuple[int, float], ...]  # (steps done, seconds per step), thinned for plots
    replica_count: int = 1
    worker_count: int = 1
    host_count: int = 1
    parameter_server_count: int = 0  # 0: training processes hold the weights
    communication: CommunicationAccount | None = None  # None for one replica, or if not measured
    one_replica: RunBefore | None = None  # None for one replica, or without an earlier run
    placement: Placement | None = None
    global_batch_size: int | None
    parameter_count: int
    train_step_count: int
    setup_time_seconds: float | None = None
    time_to_first_step_seconds: float | None
    trace_count: int | None = None
    garbage_collection_seconds: float | None = None
    trace_time_seconds: float | None = None
    compile_time_seconds: float
    first_batch_seconds: float | None = None
    python_overhead_ratio: float | None = None
    step_cpu_time_seconds: float | None = None
    energy_joules: float | None = None
    energy_gap: str = ""  # why not all energy was counted
    fit_time_seconds: float
    peak_memory_bytes: int | None
    device_memory_bytes: int | None = None  # limit of `peak_memory_bytes`
    peak_rss_bytes: int | None
    training_memory_bytes: int | None = None
    memory_series: tuple[tuple[float, int], ...] = ()  # (seconds since the first steps, host bytes)
    memory_growth: MemoryGrowth | None = None  # None if the training was too short to tell
    flops_per_step: int | None = None
    executed_flops_per_step: int | None = None
    peak_flops_per_second: float | None = None
    peak_source: str | None = None
    xla: XlaAccount | None = None
    losses: dict[str, tuple[float, ...]]  # one per epoch, by name (`loss`, `val_loss`)
    advice: tuple[Advice, ...] = ()
    runs_before: int = 0  # of a script in the same folder; pipelines have ML Metadata
    loss: str = ""  # its name; see `ended_training.loss_name`
    is_custom_loop: bool = False  # the user's own loop trained and was only timed
    fit_errors: tuple[str, ...] = ()  # errors of `fit` that the user's code caught
    idle_settings: tuple[str, ...] = ()  # settings without effect here, and why
    notes: tuple[str, ...] = ()  # events during the training, and why figures are missing
    oom_count: int = 0
    micro_batches: int = 1
    resumed_step: int | None = None
    checkpoint_time_seconds: float = 0.0

    def after_trials(self, seconds: float) -> "TrainingRecord":
        """Returns the record with the seconds of earlier trials, in other processes, included."""
        first = self.time_to_first_step_seconds
        return self.model_copy(
            update={
                "trial_time_seconds": self.trial_time_seconds + seconds,
                "fit_time_seconds": self.fit_time_seconds + seconds,
                "time_to_first_step_seconds": None if first is None else first + seconds,
            }
        )

    @property
    def trained_with(self) -> str:
        """A description of the plan, or the custom loop, that ran the steps."""
        return "a custom training loop" if self.is_custom_loop else str(self.plan)

    @property
    def trained_on(self) -> str:
        """The number of replicas and their strategy; empty for one replica alone."""
        if not self.is_of_several:
            return ""
        replicas = formatting.together(
            worker_count=self.worker_count,
            replica_count=self.replica_count,
            server_count=self.parameter_server_count,
        )
        return f"{replicas} ({self.environment['strategy']})"

    @property
    def is_of_several(self) -> bool:
        """Whether several replicas trained together, or workers beside parameter servers."""
        return self.replica_count > 1 or self.parameter_server_count > 0

    @property
    def remark(self) -> str:
        """Sentences on failures that did not prevent a model; empty without any."""
        sentences = [f"Trained with {self.plan}: {self.plan_reason}."] if self.trials_failed else []
        return " ".join([*sentences, *self.warnings])

    @property
    def warnings(self) -> list[str]:
        """Sentences on `fit_errors` and `idle_settings`."""
        return [
            *(f"Model.fit raised {it}, and your code continued." for it in self.fit_errors),
            *(f"{it}." for it in self.idle_settings),
        ]

    def figures(self) -> dict[str, float | None]:
        """Returns the metrics, in the order of the catalogue; many are fields of the same name."""
        values: dict[str, float | None] = {
            key: getattr(self, key) for key in metrics.CATALOGUE if key in type(self).model_fields
        }
        values |= self._step_figures() | self._memory_figures() | self._xla_figures()
        account = self.communication
        chosen = next((trial for trial in self.trials if trial.status == "chosen"), None)
        values |= {
            "compile_share_ratio": self.compile_time_seconds / self.fit_time_seconds,
            "plan_speedup_ratio": chosen.speedup.value if chosen and chosen.speedup else None,
            "steps_per_execution": self.plan.steps_per_execution or 1,
            "communication_share_ratio": account.communication_share if account else None,
            "load_imbalance_ratio": account.load_imbalance if account else None,
            "reduced_bytes_per_step": account.reduced_bytes_per_step if account else None,
            "train_loss": _last(self.losses, "loss"),
            "validation_loss": _last(self.losses, "val_loss"),
        }
        return {key: values[key] for key in metrics.CATALOGUE if key in values}

    def _step_figures(self) -> dict[str, float | None]:
        step, mean, batch_size = self.step_time, self.mean_step_time_seconds, self.global_batch_size
        flops, peak = self.flops_per_step or None, self.peak_flops_per_second
        examples_per_second = _quotient(batch_size, mean)
        achieved = _quotient(flops, mean)
        executed = _quotient(self.executed_flops_per_step or None, mean)
        alone = self.one_replica
        return {
            "step_time_seconds": step.value if step else None,
            "step_time_low_seconds": step.low if step else None,
            "step_time_high_seconds": step.high if step else None,
            "examples_per_second": examples_per_second,
            "replica_speedup_ratio": _quotient(
                examples_per_second, alone.examples_per_second if alone else None
            ),
            "macs_per_step": self.flops_per_step and self.flops_per_step // 2,
            "achieved_flops_per_second": achieved,
            "mfu_ratio": _quotient(achieved, peak),
            "hfu_ratio": _quotient(executed, peak),
            "energy_per_example_joules": _quotient(
                self.energy_joules, self.train_step_count * (batch_size or 0)
            ),
        }

    def _memory_figures(self) -> dict[str, float | None]:
        growth = self.memory_growth
        return {
            "peak_memory_share_ratio": _quotient(self.peak_memory_bytes, self.device_memory_bytes),
            "memory_growth_bytes_per_step": (
                max(0.0, growth.bytes_per_step.value) if growth else None
            ),
            "memory_leak": int(growth.is_leak) if growth else None,
        }

    @property
    def traced_in_trials_seconds(self) -> float:
        """Seconds of the trials that were spent tracing and compiling the chosen plan."""
        times = (each.compile_time_seconds for each in self.trials if each.plan == self.plan)
        return min(next(times, None) or 0.0, self.trial_time_seconds)

    @property
    def plan_saving_seconds(self) -> float | None:
        """Seconds that the plan saved in this run, by the lower end of turns with Keras' `fit`."""
        chosen = next((trial for trial in self.trials if trial.status == "chosen"), None)
        if chosen is None or chosen.speedup is None or chosen.step_time is None:
            return None
        return (chosen.speedup.low - 1.0) * chosen.step_time.value * self.train_step_count

    def step_time_quantiles(self) -> tuple[float, ...]:
        """Returns evenly spaced quantiles of seconds per step after warm-up; empty if too few."""
        steady = [seconds for done, seconds in self.step_times[1:] if done > _WARM_UP_STEPS]
        if not steady:
            return ()
        return tuple(np.quantile(steady, np.linspace(0, 1, _QUANTILES)).tolist())

    def _xla_figures(self) -> dict[str, float | None]:
        shapes = self.xla.compiled_shapes if self.xla else None
        tried = [trial for trial in self.trials if trial.compiled_shapes is not None]
        attempts = len(shapes or ())
        attempts += sum(max(1, len(trial.compiled_shapes or ())) for trial in tried)
        failures = sum(trial.compile_time_seconds is None for trial in tried)
        is_own_step = self.plan.is_plain_fit
        return {
            "xla_enabled": int(self.jit_compile if is_own_step else self.plan.uses_xla),
            "xla_compile_count": None if shapes is None else len(shapes),
            "xla_compile_success_ratio": 1 - failures / attempts if attempts else None,
            "xla_fusion_count": self.xla.fusion_count if self.xla else None,
            "xla_fusion_saved_bytes": self.xla.fusion_saved_bytes if self.xla else None,
        }


def _quotient(dividend: float | None, divisor: float | None) -> float | None:
    return None if dividend is None or not divisor else dividend / divisor


def _last(losses: dict[str, tuple[float, ...]], name: str) -> float | None:
    values = losses.get(name)
    return values[-1] if values else None
