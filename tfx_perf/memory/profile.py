"""Profiles a captured training step at several batch sizes."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tfx_perf.config import MemorySettings
from tfx_perf.core import console, errors, formatting, interception
from tfx_perf.hardware import devices
from tfx_perf.memory import batches, largest_batch, peak
from tfx_perf.memory.record import (
    Plan,
    ProfileProgress,
    ProfileRecord,
    StateSizes,
    StepMemory,
    Work,
)
from tfx_perf.tf_internals import autograph
from tfx_perf.xla import hlo

_SEARCH_FACTOR = 4
_SEARCH_STEPS = 4
_ACTIVITIES: Mapping[Work, str] = {
    "plain": "steps without XLA",
    "xla": "what XLA would take",
    "fragmentation": "how fragmented the allocator gets",
}
# After these nothing larger is tried.
_TOO_LARGE = ("out of memory", "killed", "timed out", "not run")


def profile(
    call: interception.FitCall,
    *,
    settings: MemorySettings,
    known: ProfileProgress | None = None,
    watch: Callable[[ProfileProgress], None] = lambda progress: None,
) -> ProfileProgress:
    """Finds out where the memory of a training step goes; the model's weights change.

    Plain steps run without XLA. Without configured batch sizes, the module's own is halved and
    doubled, and quadrupled further until the peak's growth stands out (four times at most, within
    an epoch's examples); XLA is asked of the module's own only, which takes as long as all others
    together. A size, in ascending order, is not run if its predicted peak is over the limit. What a
    killed process has left, `known`, is not done again. `completed` makes a record of it.

    Raises:
        UserError: `fit` was given data that cannot be rebatched, or none.
    """
    return _Profiling(call, settings, known or ProfileProgress(), watch).run()


def completed(progress: ProfileProgress) -> ProfileRecord:
    """Returns the record, also of sizes not run; MeasurementError if no batch was trained on."""
    if progress.draft is None:
        ended = "; ".join(
            f"batch size {step.batch_size}: {step.reason}"
            for step in progress.steps
            if step.plan == "plain"
        )
        raise errors.MeasurementError(f"no batch size could be measured ({ended})")
    steps = sorted(
        (*progress.steps, *_not_run(progress)),
        key=lambda step: (step.batch_size, step.plan),
    )
    line, reason = largest_batch.peak_line(progress.steps)
    return progress.draft.model_copy(
        update={"steps": tuple(steps), "prediction": line, "reason": reason}
    )


class _Profiling:
    def __init__(
        self,
        call: interception.FitCall,
        settings: MemorySettings,
        known: ProfileProgress,
        watch: Callable[[ProfileProgress], None],
    ) -> None:
        self._call = call
        self._settings = settings
        self._progress = known
        self._watch = watch
        self._trained_plan: Plan = "xla" if call.model.jit_compile else "plain"
        self._has_trained = False
        self._dataset = batches.dataset_of(call)
        self._own = batches.batch_size_of(batches.first_batch(self._dataset))
        self._epoch_example_count = batches.epoch_example_count(
            call, self._dataset, batch_size=self._own
        )
        self._limit = devices.memory_limit(max_utilization=settings.max_device_utilization)

    def run(self) -> ProfileProgress:
        self._call.model.jit_compile = False
        others = self._settings.batch_sizes or (max(1, self._own // 2), 2 * self._own)
        self._plan(sorted({self._own, *others}))
        compiled = self._progress.sizes if self._settings.batch_sizes else (self._own,)
        self._note(self._progress.model_copy(update={"compiled_sizes": tuple(compiled)}))
        for size in self._progress.sizes:
            self._measure(size)
        largest = self._progress.sizes[-1]
        for exponent in range(1, _SEARCH_STEPS + 1):
            steps = self._progress.steps
            is_whole = len(_peaks(steps)) == len(self._progress.sizes)
            if self._settings.batch_sizes or not is_whole or largest_batch.peak_line(steps)[0]:
                break
            size = largest * _SEARCH_FACTOR**exponent
            if size > (self._epoch_example_count or size):
                break
            self._plan([size])
            self._measure(size)
        self._compile()  # last, because it takes longest
        return self._progress

    def _plan(self, sizes: Iterable[int]) -> None:
        planned = sorted({*self._progress.sizes, *sizes})
        self._note(self._progress.model_copy(update={"sizes": tuple(planned)}))

    def _note(self, progress: ProfileProgress) -> None:
        self._progress = progress
        if progress.running is not None:
            size = f"{progress.running.batch_size:,}"
            console.set_status(f"batch size {size}: {_ACTIVITIES[progress.running.work]}")
        self._watch(progress)

    def _measure(self, size: int) -> None:
        if any(_stops(step, before=size) for step in self._progress.steps):
            return
        if not self._progress.has("plain", size):
            expected = _predicted_bytes(self._progress, size)
            if expected > self._limit.bytes:
                self._note(self._progress.with_step(_over_limit(size, expected, self._limit)))
                return
            self._note(self._progress.begun("plain", size))
            row = self._plain_row(size)
            self._note(self._progress.with_step(row))
        measured = size in _peaks(self._progress.steps)
        if measured and size == self._own and not self._progress.has("fragmentation", size):
            self._note(self._progress.begun("fragmentation", size))
            found = _fragmentation(self._call, self._batch(size))
            self._note(self._progress.with_fields(**found))

    def _compile(self) -> None:
        """Adds what XLA plans for the sizes that have trained, unless it ended a process."""
        for step in self._progress.steps:
            size = step.batch_size
            if size not in self._progress.compiled_sizes:
                continue
            if any(done.plan == "xla" and done.status == "killed" for done in self._progress.steps):
                return
            if step.plan != "plain" or step.status in _TOO_LARGE or self._progress.has("xla", size):
                continue
            self._note(self._progress.begun("xla", size))
            if not self._has_trained:  # in a process that goes on for another
                self._train(self._batch(size))
            self._note(self._progress.with_step(_xla_row(self._call, self._batch(size))))

    def _train(self, batch: Any) -> None:
        """Makes the variables."""
        with contextlib.suppress(Exception):  # the row says it, too
            peak.run_steps(self._call, batch)
        self._has_trained = True

    def _batch(self, size: int) -> Any:
        return batches.batch_of(self._dataset, size)

    def _plain_row(self, size: int) -> StepMemory:
        row = StepMemory(plan="plain", batch_size=size)
        try:
            batch = self._batch(size)
            batch_bytes = batches.tensor_bytes(batch)
            row = row.model_copy(update={"input_batch_bytes": batch_bytes})
            draft = self._progress.draft
            if draft is None:
                peak.run_steps(self._call, batch)  # makes the variables
                draft = self._draft(peak.state_sizes(self._call.model))
                self._note(self._progress.model_copy(update={"draft": draft}))
            state = draft.state
            self._has_trained = True
            resident = state.weights_bytes + state.optimizer_state_bytes + batch_bytes
            rounds = peak.step_peak(self._call, batch, resident_bytes=resident)
        except tf.errors.ResourceExhaustedError:
            ended = {"status": "out of memory", "reason": "out of device memory"}
            return row.model_copy(update=ended)
        except errors.MeasurementError as error:
            return row.model_copy(update={"status": "failed", "reason": str(error)})
        except Exception as error:  # of the user's code, perhaps at this batch size only
            if autograph.asks_for_conversion(error):
                raise
            reason = f"the step raised {errors.in_one_line(error)}"
            return row.model_copy(update={"status": "failed", "reason": reason})
        return row.model_copy(
            update={"peak_bytes": rounds.bytes, "scatter_bytes": rounds.scatter_bytes}
        )

    def _draft(self, state: StateSizes) -> ProfileRecord:
        return ProfileRecord(
            module_batch_size=self._own,
            epoch_example_count=self._epoch_example_count,
            device=devices.allocator_device(),
            replica_count=self._call.model.distribute_strategy.num_replicas_in_sync,
            keras=self._call.original.__module__.split(".")[0],
            trained_plan=self._trained_plan,
            state=state,
            steps=(),
            memory_limit_bytes=self._limit.bytes,
            limit_source=self._limit.source,
        )


def _stops(step: StepMemory, *, before: int) -> bool:
    return step.plan == "plain" and step.batch_size < before and step.status in _TOO_LARGE


def _not_run(progress: ProfileProgress) -> Iterable[StepMemory]:
    """Yields the rows that are missing."""
    for size in progress.sizes:
        for plan in ("plain", "xla"):
            if progress.has(plan, size) or (
                plan == "xla" and size not in progress.compiled_sizes
            ):
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
                f"not run: batch {culprit.batch_size}, {culprit.plan}, ended before ("
                f"{culprit.status})"
                if culprit
                else "not run: the profile ended before"
            )
            yield StepMemory(plan=plan, batch_size=size, status="not run", reason=reason)


def _over_limit(size: int, expected: float, found: devices.MemoryLimit) -> StepMemory:
    reason = (
        f"predicted to take {formatting.format_bytes(expected)}, over the limit of "
        f"{formatting.format_bytes(found.bytes)} ({found.source})"
    )
    return StepMemory(plan="plain", batch_size=size, status="not run", reason=reason)


def _predicted_bytes(progress: ProfileProgress, size: int) -> float:
    """Returns a peak by the line, or before there is one by what cannot be less; else 0."""
    peaks = _peaks(progress.steps)
    if not peaks or progress.draft is None:
        return 0.0
    line, _ = largest_batch.peak_line(progress.steps)
    if line is not None:
        return line.bytes_at(size)
    state = progress.draft.state
    fixed = state.weights_bytes + state.optimizer_state_bytes + state.gradients_bytes
    largest = max(peaks)
    # All beside the state taken as growing, which is the most that a larger batch can need.
    return fixed + max(0, peaks[largest] - fixed) * size / largest


def _peaks(steps: Iterable[StepMemory]) -> dict[int, int]:
    return {
        step.batch_size: step.peak_bytes
        for step in steps
        if step.plan == "plain" and step.peak_bytes is not None
    }


def _fragmentation(call: interception.FitCall, batch: Any) -> dict[str, Any]:
    try:
        return {"fragmentation_ratio": peak.fragmentation(lambda: peak.run_steps(call, batch))}
    except errors.MeasurementError as error:
        return {"fragmentation_gap": str(error)}


def _xla_row(call: interception.FitCall, batch: Any) -> StepMemory:
    row = StepMemory(
        plan="xla",
        batch_size=batches.batch_size_of(batch),
        input_batch_bytes=batches.tensor_bytes(batch),
    )
    try:
        buffers = hlo.buffer_sizes(hlo.model_step_hlo(call.model, batch, optimized=True))
    except hlo.NotCompilable as error:
        return row.model_copy(update={"status": "failed", "reason": str(error)})
    figures = {"peak_bytes": buffers.total_bytes, "temp_bytes": buffers.temp_bytes}
    return row.model_copy(update=figures)
