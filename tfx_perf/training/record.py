"""TrainingRecord: everything that was measured about one training."""

from typing import ClassVar

import numpy as np

from tfx_perf.core import formatting, records, statistics
from tfx_perf.core.records import Advice
from tfx_perf.memory.growth import MemoryGrowth
from tfx_perf.training.measuring.accounts import CommunicationAccount, Placement, RunBefore
from tfx_perf.training.trials.choice import PlanChoice

FILE_NAME = "metrics.json"

_WARM_UP_STEPS = 20
_QUANTILES = 41  # every 2.5 %


class XlaAccount(records.Record):
    """XLA's side of a training."""

    compiled_shapes: tuple[str, ...] | None  # one program each; None if Keras compiles its own step
    fusion_count: int | None = None  # see `xla.fusions.Fusions`; None without HLO
    fusion_saved_bytes: int | None = None
    executed_flops: int | None = None  # by the compiled part; recomputed ones count
    note: str = ""  # why there is no HLO


class TrainingRecord(PlanChoice):
    """One training, measured, with the choice of its plan; the payload of PerfMetrics.

    Fields without a comment are described by `PlanChoice` or as catalogue metrics.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.training/1"
    GONE: ClassVar[frozenset[str]] = PlanChoice.GONE | {"crowding", "misalignments", "unbound"}

    jit_compile: bool = False  # whether XLA compiles Keras' own step
    environment: dict[str, str]  # must be equal for two runs to be comparable
    step_time: statistics.Interval | None  # seconds, median after warm-up; None: too few
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
    one_replica: RunBefore | None = None  # None: there is but one, or no earlier run
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
    host_share_ratio: float | None = None
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
    losses: dict[str, tuple[float, ...]]  # one an epoch, by name (`loss`, `val_loss`)
    advice: tuple[Advice, ...] = ()
    runs_before: int = 0  # of a script with the same folder; pipelines have ML Metadata
    loss: str = ""  # its name; see `recording.loss_name`
    is_custom_loop: bool = False  # the user's own loop trained, and was only timed
    fit_errors: tuple[str, ...] = ()  # errors of `fit` that the user's code survived
    idle_settings: tuple[str, ...] = ()  # without effect here, and why
    notes: tuple[str, ...] = ()  # events on the way, and why figures are missing
    oom_count: int = 0
    micro_batches: int = 1
    resumed_step: int | None = None
    checkpoint_time_seconds: float = 0.0

    def after_trials(self, seconds: float) -> "TrainingRecord":
        """Returns the record with trials that went before, as those of other processes count."""
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
        """The plan, or the custom loop, that ran the steps, in words."""
        return "a custom training loop" if self.is_custom_loop else str(self.plan)

    @property
    def trained_on(self) -> str:
        """The number of replicas and their strategy; empty for one replica alone."""
        if not self.is_of_several:
            return ""
        found = formatting.together(
            worker_count=self.worker_count,
            replica_count=self.replica_count,
            server_count=self.parameter_server_count,
        )
        return f"{found} ({self.environment['strategy']})"

    @property
    def is_of_several(self) -> bool:
        """Whether several replicas trained together, or workers beside parameter servers."""
        return self.replica_count > 1 or self.parameter_server_count > 0

    @property
    def remark(self) -> str:
        """Sentences on failures in spite of which there is a model; empty without any."""
        said = [f"Trained with {self.plan}: {self.plan_reason}."] if self.trials_failed else []
        return " ".join([*said, *self.warnings])

    @property
    def warnings(self) -> list[str]:
        """Sentences on `fit_errors` and `idle_settings`."""
        return [
            *(f"A call of Model.fit raised {it}, and run_fn went on." for it in self.fit_errors),
            *(f"{it}." for it in self.idle_settings),
        ]

    def figures(self) -> dict[str, float | None]:
        """Returns the record's metrics, keyed by the catalogue."""
        step = self.step_time.value if self.step_time else None
        mean = self.mean_step_time_seconds
        flops, executed = self.flops_per_step, self.executed_flops_per_step
        achieved = flops / mean if flops and mean else None
        peak = self.peak_flops_per_second
        chosen = next((trial for trial in self.trials if trial.status == "chosen"), None)
        return {
            "step_time_seconds": step,
            "step_time_low_seconds": self.step_time.low if self.step_time else None,
            "step_time_high_seconds": self.step_time.high if self.step_time else None,
            "step_time_error_ratio": self.step_time_error_ratio,
            "step_time_median_error_ratio": self.step_time_median_error_ratio,
            "step_time_p90_seconds": self.step_time_p90_seconds,
            "step_time_p99_seconds": self.step_time_p99_seconds,
            "examples_per_second": (
                self.global_batch_size / mean if self.global_batch_size and mean else None
            ),
            "setup_time_seconds": self.setup_time_seconds,
            "time_to_first_step_seconds": self.time_to_first_step_seconds,
            "compile_time_seconds": self.compile_time_seconds,
            "compile_share_ratio": self.compile_time_seconds / self.fit_time_seconds,
            "trace_time_seconds": self.trace_time_seconds,
            "first_batch_seconds": self.first_batch_seconds,
            "trace_count": self.trace_count,
            "garbage_collection_seconds": self.garbage_collection_seconds,
            "fit_time_seconds": self.fit_time_seconds,
            "trial_time_seconds": self.trial_time_seconds,
            "trial_import_seconds": self.trial_import_seconds,
            "trial_setup_seconds": self.trial_setup_seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "peak_memory_share_ratio": (
                self.peak_memory_bytes / self.device_memory_bytes
                if self.peak_memory_bytes is not None and self.device_memory_bytes
                else None
            ),
            "peak_rss_bytes": self.peak_rss_bytes,
            "training_memory_bytes": self.training_memory_bytes,
            "memory_growth_bytes_per_step": (
                max(0.0, self.memory_growth.bytes_per_step.value) if self.memory_growth else None
            ),
            "memory_leak": int(self.memory_growth.is_leak) if self.memory_growth else None,
            "flops_per_step": flops,
            "macs_per_step": flops and flops // 2,
            "executed_flops_per_step": executed,
            "achieved_flops_per_second": achieved,
            "peak_flops_per_second": peak,
            "mfu_ratio": achieved / peak if achieved and peak else None,
            "hfu_ratio": executed / mean / peak if executed and mean and peak else None,
            "input_wait_ratio": self.input_wait_ratio,
            "host_share_ratio": self.host_share_ratio,
            "energy_joules": self.energy_joules,
            "energy_per_example_joules": (
                self.energy_joules / (self.train_step_count * self.global_batch_size)
                if self.energy_joules is not None
                and self.global_batch_size
                and self.train_step_count
                else None
            ),
            "plan_speedup_ratio": chosen.speedup.value if chosen and chosen.speedup else None,
            "steps_per_call": self.plan.steps_per_call or 1,
            "xla_enabled": int(
                self.jit_compile if self.plan.is_plain_fit else self.plan.uses_xla
            ),
            **self._xla_figures(),
            **self._communication_figures(),
            "replica_speedup_ratio": (
                self.global_batch_size / mean / self.one_replica.examples_per_second
                if self.one_replica and self.global_batch_size and mean
                else None
            ),
            "replica_count": self.replica_count,
            "worker_count": self.worker_count,
            "host_count": self.host_count,
            "global_batch_size": self.global_batch_size,
            "parameter_count": self.parameter_count,
            "train_step_count": self.train_step_count,
            "oom_count": self.oom_count,
            "micro_batches": self.micro_batches,
            "resumed_step": self.resumed_step,
            "checkpoint_time_seconds": self.checkpoint_time_seconds,
            "train_loss": _last(self.losses, "loss"),
            "validation_loss": _last(self.losses, "val_loss"),
        }

    @property
    def plan_saving_seconds(self) -> float | None:
        """The plan's approximate saving in this run, by turns with plain `fit`; None without."""
        times = {trial.status: trial.step_time for trial in self.trials if trial.step_time}
        took_turns = any(trial.status == "chosen" and trial.speedup for trial in self.trials)
        if not took_turns or not times.keys() >= {"reference", "chosen"}:
            return None
        saved_seconds = times["reference"].value - times["chosen"].value
        return saved_seconds * self.train_step_count

    def choice_for_another_run(self, source: str, *, planned_runs: int) -> PlanChoice | None:
        """Returns the choices for a run without trials; None if it needs some for this `fit`."""
        if not self.is_final(planned_runs=planned_runs):
            return None
        own = PlanChoice(**{name: getattr(self, name) for name in PlanChoice.model_fields})
        first, *others = (
            choice.model_copy(
                update={
                    "plan": choice.plan.in_whole_batches,  # there may be memory for it
                    "trial_time_seconds": 0.0,
                    "trial_import_seconds": None,
                    "trial_setup_seconds": None,
                    "reused_from": choice.reused_from or source,
                }
            )
            for choice in own.of_all_fits
            if choice.is_final(planned_runs=planned_runs)
        )
        return first.model_copy(update={"other_choices": tuple(others)})

    def step_time_quantiles(self) -> tuple[float, ...]:
        """Returns evenly spaced quantiles of seconds per step after warm-up; empty if too few."""
        steady = [seconds for done, seconds in self.step_times[1:] if done > _WARM_UP_STEPS]
        if not steady:
            return ()
        return tuple(np.quantile(steady, np.linspace(0, 1, _QUANTILES)).tolist())

    def _communication_figures(self) -> dict[str, float | None]:
        account = self.communication
        return {
            "communication_share_ratio": account.communication_share if account else None,
            "load_imbalance_ratio": account.load_imbalance if account else None,
            "reduced_bytes_per_step": account.reduced_bytes_per_step if account else None,
        }

    def _xla_figures(self) -> dict[str, float | None]:
        own = self.xla.compiled_shapes if self.xla else None
        tried = [trial for trial in self.trials if trial.compiled_shapes is not None]
        attempts = sum(max(1, len(trial.compiled_shapes or ())) for trial in tried) + len(own or ())
        failures = sum(trial.compile_time_seconds is None for trial in tried)
        return {
            "xla_compile_count": None if own is None else len(own),
            "xla_compile_success_ratio": 1 - failures / attempts if attempts else None,
            "xla_fusion_count": self.xla.fusion_count if self.xla else None,
            "xla_fusion_saved_bytes": self.xla.fusion_saved_bytes if self.xla else None,
        }


def _last(losses: dict[str, tuple[float, ...]], name: str) -> float | None:
    values = losses.get(name)
    return values[-1] if values else None
