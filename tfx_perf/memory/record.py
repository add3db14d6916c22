"""The results of MemoryProfiler, and its progress, which remains if its process is killed."""

from typing import Any, ClassVar, Literal

import pydantic

from tfx_perf.core import formatting, records
from tfx_perf.core.records import Advice

FILE_NAME = "profile.json"
PROGRESS_FILE_NAME = "profile_progress.json"

_LARGE_SHARE = 0.5  # share of the limit, or of the peak

Plan = Literal["plain", "xla"]
Work = Literal["plain", "fragmentation", "xla"]
# How a batch size ended. `failed`: it raised, or could not be measured; `killed`: its process was.
Status = Literal["measured", "failed", "out of memory", "killed", "timed out", "not run"]

# The module, the machine or the time is to blame for these; a too large batch is a finding.
_WRONG: tuple[Status, ...] = ("failed", "killed", "timed out")


class StateSizes(records.Record):
    """Memory that a step holds on one replica; gradients count as if all were dense."""

    weights_bytes: int
    optimizer_state_bytes: int
    gradients_bytes: int


class Prediction(records.Record):
    """A straight line through measured peaks, and its largest relative distance from any peak."""

    fixed_bytes: float
    bytes_per_example: float
    deviation_ratio: float

    def bytes_at(self, batch_size: float) -> float:
        """Returns the predicted peak for a batch size."""
        return self.fixed_bytes + self.bytes_per_example * batch_size


class Attempt(records.Record):
    """One batch size that was tried; `reason` says why it has no figure."""

    batch_size: int
    status: Status = "measured"
    reason: str = ""


class StepMemory(Attempt):
    """One training step at one batch size under one plan.

    Attributes:
        plan: `plain`: run by Keras without XLA, with the allocator's peak; or `xla`: compiled but
            not run, with XLA's buffer assignment.
        peak_bytes: on one device.
        scatter_bytes: how much the peak varied between steps; `plain` only.
        temp_bytes: temporaries of the buffer assignment; `xla` only.
    """

    plan: Plan
    input_batch_bytes: int | None = None
    peak_bytes: int | None = None
    scatter_bytes: int | None = None
    temp_bytes: int | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _with_status(cls, values: Any) -> Any:
        """Sets the status `failed` for a row of older records, which have only a reason."""
        if isinstance(values, dict) and "status" not in values and values.get("reason"):
            return {**values, "status": "failed"}
        return values


class Footprint(Attempt):
    """Memory and time of the first training steps at one batch size, with the module's own plan.

    It is measured in a separate process, or after smaller batches.

    Attributes:
        taken_bytes: on a CPU the largest growth, from `fit` on, of the process's resident memory
            outside of files (up to the limit, if stopped there); otherwise the allocator's peak.
        seconds: time of all these steps.
        step_seconds: time of a step after the first, which is traced; None if unknown.
        limit_bytes: the memory limit at that time; None if the process did not get that far.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.footprint/1"

    taken_bytes: int | None = None
    seconds: float | None = None
    step_seconds: float | None = None
    limit_bytes: int | None = None


class ProfileRecord(records.Record):
    """Where the memory of a training step goes.

    Attributes:
        module_batch_size: the batch size that the user's module trains with.
        epoch_example_count: about how many examples an epoch of its `fit` has; None if unknown.
        replica_count: replicas of the module's strategy; figures are those of one device.
        prediction: growth of the plain step's peak; None, with `reason`, if it does not stand out.
        trained_plan: the plan that the module's `fit` trains with; None in older records.
        footprints: footprints with that plan; empty in older records, where `prediction` gave the
            largest batch.
        largest_batch_size: one that fits, and was trained on or is smaller; None if unknown.
        fragmentation_ratio: at the peak of a plain step at the module's batch size; None, with
            `fragmentation_gap`, if unknown.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.memory/1"
    REMOVED: ClassVar[frozenset[str]] = frozenset({"footprint_line"})

    module_batch_size: int
    epoch_example_count: int | None = None
    device: str
    replica_count: int
    keras: str
    state: StateSizes
    steps: tuple[StepMemory, ...]
    prediction: Prediction | None = None
    reason: str = ""
    trained_plan: Plan | None = None
    footprints: tuple[Footprint, ...] = ()
    largest_batch_size: int | None = None
    largest_is_lower_bound: bool = False
    largest_remark: str = ""
    memory_limit_bytes: int
    limit_source: str
    fragmentation_ratio: float | None = None
    fragmentation_gap: str = ""

    def step(self, plan: Plan, batch_size: int) -> StepMemory:
        """Returns the row of a plan and a batch size; KeyError if it was not profiled."""
        for step in self.steps:
            if (step.plan, step.batch_size) == (plan, batch_size):
                return step
        raise KeyError((plan, batch_size))

    def parts(self, step: StepMemory) -> dict[str, int]:
        """Splits the peak of a step with a figure into its categories, in bytes.

        The rest, `activations and temporaries`, includes scratch and metrics. It is never negative,
        although the others may exceed the peak, since gradients are freed early. XLA plans
        gradients among its temporaries, so there they are not split off.
        """
        gradients = self.state.gradients_bytes if step.plan == "plain" else 0
        known = {
            "weights": self.state.weights_bytes,
            "optimizer state": self.state.optimizer_state_bytes,
            "gradients": gradients,
            "input batch": step.input_batch_bytes or 0,
        }
        rest = max(0, (step.peak_bytes or 0) - sum(known.values()))
        return {**known, "activations and temporaries": rest}

    @property
    def endings(self) -> dict[int, Status]:
        """How each batch size ended, ascending: the worse of its footprint and its step."""
        return {size: item.status for size, item in self._worst.items()}

    @property
    def remark(self) -> str:
        """The failures, in a sentence; empty if there were none."""
        sizes: dict[str, list[str]] = {}
        measured = [size for size, status in self.endings.items() if status == "measured"]
        most = max(measured, default=0)
        for size, item in self._worst.items():
            if item.status in _WRONG:
                sizes.setdefault(item.reason, []).append(f"{size:,}")
                if size > most and item.status == "failed":
                    break  # larger ones raise for the same reason, with other messages
        ended = [
            f"batch{'es' if len(batches) > 1 else ''} {', '.join(batches)}: {reason}"
            for reason, batches in sizes.items()
        ]
        return f"Not all was measured: {'; '.join(ended)}." if ended else ""

    @property
    def _worst(self) -> dict[int, Attempt]:
        by_size: dict[int, Attempt] = {}
        for item in (*self.footprints, *(step for step in self.steps if step.plan == "plain")):
            if item.batch_size not in by_size or by_size[item.batch_size].status == "measured":
                by_size[item.batch_size] = item
        return dict(sorted(by_size.items()))

    @property
    def advice(self) -> tuple[Advice, ...]:
        """Changes that the figures at the module's own batch size suggest."""
        step = self.step("plain", self.module_batch_size)
        if not step.peak_bytes or step.peak_bytes < _LARGE_SHARE * self.memory_limit_bytes:
            return ()
        activations = self.parts(step)["activations and temporaries"]
        if activations < _LARGE_SHARE * step.peak_bytes:
            return ()
        sizes = map(formatting.format_bytes, (activations, step.peak_bytes))
        message = (
            f"Activations and temporaries are {' of '.join(sizes)}, and the limit is "
            f"{formatting.format_bytes(self.memory_limit_bytes)}: with "
            "training.gradient_checkpointing=auto OptimizedTrainer computes most activations twice "
            "instead of keeping them."
        )
        return (Advice(code="activations", message=message),)

    def figures(self) -> dict[str, float | None]:
        """Returns the figures at the module's own batch size, keyed by the metric catalogue."""
        plain = self.step("plain", self.module_batch_size)
        xla = self.step("xla", self.module_batch_size)
        measured = plain.peak_bytes is not None
        trained = [item for item in self.footprints if item.status == "measured"]
        taken = {item.batch_size: item.taken_bytes for item in trained}
        return {
            **self.state.model_dump(),
            "input_batch_bytes": plain.input_batch_bytes,
            "activation_bytes": (
                self.parts(plain)["activations and temporaries"] if measured else None
            ),
            "step_peak_bytes": plain.peak_bytes,
            "xla_peak_bytes": xla.peak_bytes,
            "xla_temp_bytes": xla.temp_bytes,
            "bytes_per_example": self.prediction and self.prediction.bytes_per_example,
            "footprint_bytes": taken.get(self.module_batch_size),
            "largest_batch_size": self.largest_batch_size,
            "largest_batch_is_lower_bound": (
                None if self.largest_batch_size is None else int(self.largest_is_lower_bound)
            ),
            "largest_trained_batch_size": max(taken, default=None),
            "memory_limit_bytes": self.memory_limit_bytes,
            "fragmentation_ratio": self.fragmentation_ratio,
        }


class Running(records.Record):
    """The measurement under way: a step under a plan, or fragmentation."""

    work: Work
    batch_size: int


class ProfileProgress(records.Record):
    """An unfinished profile, written around each measurement; `draft` is None until one trains."""

    SCHEMA: ClassVar[str] = "tfx_perf.memory_progress/1"

    sizes: tuple[int, ...] = ()
    compiled_sizes: tuple[int, ...] = ()
    running: Running | None = None
    steps: tuple[StepMemory, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    draft: ProfileRecord | None = None

    def has(self, work: Work, batch_size: int) -> bool:
        """Returns whether a step has a row, or fragmentation was examined."""
        if work == "fragmentation":
            draft = self.draft
            return draft is not None and bool(
                draft.fragmentation_gap or draft.fragmentation_ratio is not None
            )
        return any((step.plan, step.batch_size) == (work, batch_size) for step in self.steps)

    def begun(self, work: Work, batch_size: int) -> "ProfileProgress":
        """Returns the progress with a measurement under way."""
        return self.model_copy(update={"running": Running(work=work, batch_size=batch_size)})

    def with_step(self, step: StepMemory) -> "ProfileProgress":
        """Returns the progress with a step done, and nothing under way."""
        return self.model_copy(update={"running": None, "steps": (*self.steps, step)})

    def with_footprint(self, footprint: Footprint) -> "ProfileProgress":
        """Returns the progress with a footprint taken, and nothing under way."""
        footprints = (*self.footprints, footprint)
        return self.model_copy(update={"running": None, "footprints": footprints})

    def with_fields(self, **fields: float | str) -> "ProfileProgress":
        """Returns the progress with fields of the draft filled in, and nothing under way."""
        draft = self.draft and self.draft.model_copy(update=fields)
        return self.model_copy(update={"running": None, "draft": draft})

    def cut_off(self, status: Status, reason: str) -> "ProfileProgress":
        """Returns the progress with the running step ended; `reason` is a phrase."""
        if self.running is None:
            return self
        reason = f"its process {reason}"
        if self.running.work == "fragmentation":
            return self.with_fields(fragmentation_gap=reason)
        return self.with_step(
            StepMemory(
                plan=self.running.work,
                batch_size=self.running.batch_size,
                status=status,
                reason=reason,
            )
        )
