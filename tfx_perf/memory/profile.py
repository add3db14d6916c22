"""Profiles a captured training step at several batch sizes."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfx_perf.config import MemorySettings
from tfx_perf.core import console, errors, formatting, interception
from tfx_perf.hardware import devices
from tfx_perf.memory import batches, footprint, largest_batch, peak
from tfx_perf.memory.record import (
    Plan,
    ProfileProgress,
    ProfileRecord,
    StateSizes,
    StepMemory,
    Work,
)
from tfx_perf.xla import hlo

_ACTIVITIES: Mapping[Work, str] = {
    "plain": "steps without XLA",
    "fragmentation": "how fragmented the allocator gets",
    "xla": "what XLA would take",
}
# After one of these, no larger size is tried.
_TOO_LARGE = ("out of memory", "killed", "timed out", "not run")
# XLA may compile for this share of the training's time, or until the profile took these seconds.
_XLA_SHARE, _XLA_SECONDS = 0.05, 2.0
_FURTHER, _MOST_SIZES = 4, 6  # factor to the next size, and most sizes, until growth stands out


def profile(
    call: interception.FitCall,
    *,
    settings: MemorySettings,
    reserved_bytes: int = 0,
    example_count: int | None = None,
    why_no_xla: str | None = None,
    known: ProfileProgress | None = None,
    watch: Callable[[ProfileProgress], None] = lambda progress: None,
) -> ProfileProgress:
    """Finds out where the memory of a training step goes; the model's weights change.

    Plain steps run without XLA. Without configured batch sizes, the module's own is halved and
    doubled, and XLA compiles only the module's own, or none if `why_no_xla` gives a reason. If the
    module trains without XLA, the same steps give its footprint, and larger batches follow as long
    as they are quick and far from the limit; with XLA, a few follow until growth stands out. None
    has a predicted peak over the limit, or more examples than an epoch or the split, which has
    `example_count`. Steps may not use `reserved_bytes` of the RAM.

    This needs a separate process, which is ended if memory runs out. Measurements in `known`, left
    by such a process, are not repeated. `completed` makes a record of the progress.

    Raises:
        UserError: `fit` was given data that cannot be rebatched, or none.
    """
    progress = known or ProfileProgress()
    profiling = _Profiling(call, settings, reserved_bytes, progress, watch)
    return profiling.run(example_count, why_no_xla=why_no_xla)


def completed(progress: ProfileProgress) -> ProfileRecord:
    """Returns the record, with sizes not run; MeasurementError if no batch was trained on."""
    if progress.draft is None:
        ended = "; ".join(
            f"batch size {step.batch_size}: {step.reason}" for step in _plain(progress.steps)
        )
        raise errors.MeasurementError(f"no batch size could be measured ({ended})")
    steps = sorted(
        (*progress.steps, *_not_run(progress)), key=lambda step: (step.batch_size, step.plan)
    )
    line, reason = largest_batch.peak_line(progress.steps)
    return progress.draft.model_copy(
        update={
            "steps": tuple(steps),
            "prediction": line,
            "reason": reason,
            "footprints": progress.footprints,
        }
    )


class _Profiling:
    def __init__(
        self,
        call: interception.FitCall,
        settings: MemorySettings,
        reserved_bytes: int,
        known: ProfileProgress,
        watch: Callable[[ProfileProgress], None],
    ) -> None:
        self._call, self._settings = call, settings
        self._progress, self._watch = known, watch
        self._trained_plan: Plan = "xla" if call.model.jit_compile else "plain"
        call.model.jit_compile = False
        self._meter = footprint.FootprintMeter(
            call,
            max_utilization=settings.max_device_utilization,
            reserved_bytes=reserved_bytes,
            note=lambda measured: self._note(self._progress.with_footprint(measured)),
        )
        self._has_trained = False
        self._own = self._meter.batch_size
        self._epoch_example_count = batches.epoch_example_count(
            call, self._meter.dataset, batch_size=self._own
        )

    def run(self, example_count: int | None, *, why_no_xla: str | None) -> ProfileProgress:
        configured = self._settings.batch_sizes
        self._plan(self._own, *(configured or (max(1, self._own // 2), 2 * self._own)))
        compiled = self._progress.sizes if configured else (self._own,)
        self._note(self._progress.model_copy(update={"compiled_sizes": compiled}))
        for size in self._progress.sizes:
            self._measure(size)
        counts = filter(None, [example_count, self._epoch_example_count])
        most = max(configured, default=min(counts, default=largest_batch.ENOUGH))
        while larger := self._larger(most):
            self._plan(larger)
            self._measure(larger)
        self._look_at_fragmentation()
        is_asked = configured or self._trained_plan == "xla"
        self._compile(None if is_asked else why_no_xla or self._too_short())
        return self._progress

    def _larger(self, most: int) -> int | None:
        """Returns a further size: a quick one, or without footprints one that may show growth."""
        progress, steps = self._progress, _plain(self._progress.steps)
        if self._trained_plan == "plain":
            return largest_batch.next_quick_size(progress.footprints, most=most, steps=steps)
        size = _FURTHER * max(_peaks(steps), default=most)
        is_over = size > most or _predicted_bytes(progress, size) > self._meter.limit.bytes
        is_enough = size in progress.sizes or len(progress.sizes) >= _MOST_SIZES
        return None if is_over or is_enough or largest_batch.peak_line(steps)[0] else size

    def _plan(self, *sizes: int) -> None:
        planned = tuple(sorted({*self._progress.sizes, *sizes}))
        self._note(self._progress.model_copy(update={"sizes": planned}))

    def _note(self, progress: ProfileProgress) -> None:
        self._progress = progress
        if progress.running is not None:
            size = f"{progress.running.batch_size:,}"
            console.set_status(f"batch size {size}: {_ACTIVITIES[progress.running.work]}")
        self._watch(progress)

    def _measure(self, size: int) -> None:
        progress = self._progress
        if progress.has("plain", size) or any(
            step.plan == "plain" and step.batch_size < size and step.status in _TOO_LARGE
            for step in progress.steps
        ):
            return
        expected_bytes, limit = _predicted_bytes(progress, size), self._meter.limit
        if expected_bytes > limit.bytes:
            self._note(progress.with_step(_over_limit(size, expected_bytes, limit)))
            return
        self._note(progress.begun("plain", size))
        # If a process was ended at the limit, the allocator may still measure the step.
        was_ended = any(item.batch_size == size for item in progress.footprints)
        has_footprint = self._trained_plan == "plain" and not was_ended
        measured = self._meter.take(size, may_end=has_footprint)
        row = self._row(measured)
        progress = self._progress
        if has_footprint and measured.footprint.status == "measured":
            progress = progress.with_footprint(measured.footprint)
        self._note(progress.with_step(row))

    def _row(self, measured: footprint.Measured) -> StepMemory:
        """Returns the step's row; the first step that trains also gives the sizes of the state."""
        taken = measured.footprint
        row = StepMemory(
            plan="plain",
            batch_size=taken.batch_size,
            status=taken.status,
            reason=taken.reason,
            input_batch_bytes=measured.batch_bytes,
        )
        if taken.status != "measured":
            return row
        self._has_trained = True
        draft = self._progress.draft or self._draft(peak.state_sizes(self._call.model))
        self._note(self._progress.model_copy(update={"draft": draft}))
        gap = peak.gap(draft.device)
        if gap:
            return row.model_copy(update={"status": "failed", "reason": gap})
        state = draft.state  # nothing else in the process counts
        resident_bytes = state.weights_bytes + state.optimizer_state_bytes
        *others, highest_bytes = sorted(measured.rises_bytes)
        figures = {
            "peak_bytes": resident_bytes + (measured.batch_bytes or 0) + highest_bytes,
            "scatter_bytes": highest_bytes - others[0],
        }
        return row.model_copy(update=figures)

    def _look_at_fragmentation(self) -> None:
        size = self._own
        if self._progress.has("fragmentation", size) or size not in _peaks(self._progress.steps):
            return
        self._note(self._progress.begun("fragmentation", size))
        batch = self._meter.batch(size)
        try:
            ratio = peak.fragmentation(lambda: peak.run_steps(self._call, batch))
            self._note(self._progress.with_fields(fragmentation_ratio=ratio))
        except errors.MeasurementError as error:
            self._note(self._progress.with_fields(fragmentation_gap=str(error)))

    def _compile(self, why_not: str | None) -> None:
        """Adds what XLA plans for the sizes that have trained, unless it had a process killed."""
        for step in _plain(self._progress.steps):
            size = step.batch_size
            if any(done.plan == "xla" and done.status == "killed" for done in self._progress.steps):
                return
            is_wanted = size in self._progress.compiled_sizes and step.status not in _TOO_LARGE
            if not is_wanted or self._progress.has("xla", size):
                continue
            self._note(self._progress.begun("xla", size))
            batch = self._meter.batch(size)
            if not self._has_trained:  # in a process that resumes for another
                with contextlib.suppress(Exception):  # the row will say so, too
                    peak.run_steps(self._call, batch)  # creates the variables
                self._has_trained = True
            self._note(self._progress.with_step(_xla_row(self._call, batch, why_not)))

    def _too_short(self) -> str | None:
        """Returns why XLA is not asked, if the training is short for that; None otherwise."""
        taken = self._progress.footprints
        module_batch = next((each for each in taken if each.batch_size == self._own), None)
        steps = (self._epoch_example_count or 0) / self._own * self._call.arguments["epochs"]
        if module_batch is None or not steps:
            return None
        training_seconds = steps * (module_batch.step_seconds or 0.0)
        spent_seconds = sum(each.seconds or 0.0 for each in taken)
        compile_seconds = taken[0].seconds or 0.0  # about what the first, traced batch took
        allowed_seconds = max(_XLA_SECONDS - spent_seconds, _XLA_SHARE * training_seconds)
        if compile_seconds <= allowed_seconds:
            return None
        return "the training is too short to wait for XLA; memory.batch_sizes asks it anyway"

    def _draft(self, state: StateSizes) -> ProfileRecord:
        return ProfileRecord(
            module_batch_size=self._own,
            epoch_example_count=self._epoch_example_count,
            device=devices.allocator_device(),
            replica_count=self._call.model.distribute_strategy.num_replicas_in_sync,
            keras=self._call.package,
            trained_plan=self._trained_plan,
            state=state,
            steps=(),
            memory_limit_bytes=self._meter.limit.bytes,
            limit_source=self._meter.limit.source,
        )


def _plain(steps: Iterable[StepMemory]) -> list[StepMemory]:
    return [step for step in steps if step.plan == "plain"]


def _not_run(progress: ProfileProgress) -> Iterable[StepMemory]:
    for size in progress.sizes:
        for plan in ("plain", "xla"):
            if progress.has(plan, size) or (plan == "xla" and size not in progress.compiled_sizes):
                continue
            culprit = next(
                (
                    step
                    for step in progress.steps
                    if step.batch_size <= size and step.status in _TOO_LARGE
                ),
                None,
            )
            reason = (
                f"not run after batch {culprit.batch_size} ({culprit.plan}): {culprit.status}"
                if culprit
                else "not run: profiling ended first"
            )
            yield StepMemory(plan=plan, batch_size=size, status="not run", reason=reason)


def _over_limit(size: int, expected: float, limit: devices.MemoryLimit) -> StepMemory:
    reason = (
        f"predicted to take {formatting.format_bytes(expected)}, over the limit of "
        f"{formatting.format_bytes(limit.bytes)} ({limit.source})"
    )
    return StepMemory(plan="plain", batch_size=size, status="not run", reason=reason)


def _predicted_bytes(progress: ProfileProgress, size: int) -> float:
    """Returns a peak by the line, or before there is one by an upper bound; 0 without peaks."""
    peaks = _peaks(progress.steps)
    if not peaks or progress.draft is None:
        return 0.0
    line, _ = largest_batch.peak_line(progress.steps)
    if line is not None:
        return line.bytes_at(size)
    state = progress.draft.state
    fixed = state.weights_bytes + state.optimizer_state_bytes + state.gradients_bytes
    largest = max(peaks)
    # Everything besides the state is assumed to grow, the most that a larger batch can need.
    return fixed + max(0, peaks[largest] - fixed) * size / largest


def _peaks(steps: Iterable[StepMemory]) -> dict[int, int]:
    return {
        step.batch_size: step.peak_bytes for step in _plain(steps) if step.peak_bytes is not None
    }


def _xla_row(call: interception.FitCall, batch: Any, why_not: str | None) -> StepMemory:
    row = StepMemory(
        plan="xla",
        batch_size=batches.batch_size_of(batch),
        input_batch_bytes=batches.tensor_bytes(batch),
    )
    if why_not:
        return row.model_copy(update={"status": "not run", "reason": why_not})
    try:
        buffers = hlo.buffer_sizes(hlo.model_step_hlo(call.model, batch, optimized=True))
    except hlo.NotCompilable as error:
        return row.model_copy(update={"status": "failed", "reason": str(error)})
    figures = {"peak_bytes": buffers.total_bytes, "temp_bytes": buffers.temp_bytes}
    return row.model_copy(update=figures)
