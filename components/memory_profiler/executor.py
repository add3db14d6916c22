"""Profiles the user's training step in separate processes, and publishes the result."""

import logging
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import json_utils

from tfx_perf import isolate
from tfx_perf.components import artifacts, trainer_args
from tfx_perf.components.memory_profiler import child
from tfx_perf.components.types import Artifacts
from tfx_perf.config import MemorySettings, PerfConfig
from tfx_perf.core import console, errors, storage
from tfx_perf.core.unmeasured import MissingMeasurement
from tfx_perf.memory import largest_batch, peak, profile, record
from tfx_perf.memory.record import Footprint, Plan, ProfileProgress, ProfileRecord, Status
from tfx_perf.report import memory as memory_report

# One per process: a step, a footprint, the check of fragmentation and the compiler may each be
# killed, after which the next process continues with the rest.
_LOG_FILES = tuple(f"profile{end}.log" for end in ("", "-2", "-3", "-4", "-5"))
_STEPS_SHARE = 0.5  # of the time; the rest is for the footprints
_MOST_PROCESSES = 3  # for footprints after the first
_FOOTPRINT_SHARE = 0.25  # of the time, for each footprint after the first
_WORTH_IT = 2  # times the previous batch size; a smaller batch would say little
_LOGGER = logging.getLogger(__name__)


class Executor(base_executor.BaseExecutor):
    """Profiles in child processes and publishes the result."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Profiles the user's training step; the artifact has the figures or the reason."""
        exec_properties = trainer_args.with_train_steps(exec_properties)
        settings = PerfConfig.from_json(exec_properties["config"]).memory
        target = artifact_utils.get_single_instance(output_dict["memory_profile"])
        storage.path(target.uri)  # reports a store's missing driver at once
        origin = artifacts.origin_of(self._context, input_dict)
        with tempfile.TemporaryDirectory(prefix="memory-profiler-") as name:
            folder = pathlib.Path(name)
            measured = Attempts(
                json_utils.dumps(input_dict), exec_properties, settings=settings, folder=folder
            ).profile()
            if isinstance(measured, MissingMeasurement):
                artifacts.publish_unmeasured(
                    target,
                    measured,
                    title=memory_report.TITLE,
                    labels={"not_measured": measured.reason},
                    origin=origin,
                )
            else:
                artifacts.publish(
                    target,
                    measured,
                    file_name=record.FILE_NAME,
                    figures=measured.figures(),
                    labels={
                        "keras": measured.keras,
                        "device": measured.device,
                        "batch_sizes": "; ".join(
                            f"{size}: {status}" for size, status in measured.endings.items()
                        ),
                    },
                    page=memory_report.report_on(measured),
                    origin=origin,
                    remark=measured.remark,
                )
            for log in sorted(folder.glob("*.log")):
                storage.copy(log, target.uri)


class Attempts:
    """Profiles a module within a time limit, whatever happens to the processes that do it."""

    def __init__(
        self,
        inputs: str,
        exec_properties: Mapping[str, Any],
        *,
        settings: MemorySettings,
        folder: pathlib.Path,
    ) -> None:
        tuned = trainer_args.input_plan(json_utils.loads(inputs))
        reserved_bytes = tuned.resident_bytes if tuned else 0
        self._module = child.Module(inputs, dict(exec_properties), str(folder), reserved_bytes)
        self._example_count = tuned.example_count if tuned else None  # of the split
        self._settings, self._folder = settings, folder
        self._progress_file = folder / record.PROGRESS_FILE_NAME
        self._deadline = time.monotonic() + settings.timeout_seconds
        self._took_seconds = 0.0  # by the last process

    def profile(self) -> ProfileRecord | MissingMeasurement:
        """Returns the profile, or why there is none."""
        missing = self._run_steps()
        if missing is not None:
            return missing
        try:
            profiled = profile.completed(ProfileProgress.read(self._progress_file))
        except errors.MeasurementError as error:
            return MissingMeasurement(reason=str(error), may_pass=True)
        return self._completed(profiled)

    def _run(
        self,
        job: Callable[..., Any],
        *,
        plan: Plan = "plain",
        log_name: str,
        timeout_seconds: float,
        **arguments: Any,
    ) -> Any:
        began = time.monotonic()
        try:
            return isolate.run(
                f"{child.__name__}:{job.__name__}",
                {"module": self._module, **arguments},
                timeout_seconds=timeout_seconds,
                log_path=self._folder / log_name,
                # XLA takes far more memory from the default allocator.
                environment=peak.ENVIRONMENT if plan == "plain" else None,
                is_forked=True,
            )
        finally:
            self._took_seconds = time.monotonic() - began

    def _run_steps(self) -> MissingMeasurement | None:
        """Profiles the steps; returns why not even one ran, None if one did."""
        deadline = time.monotonic() + _STEPS_SHARE * self._settings.timeout_seconds
        place, before = self._progress_file, None
        for log_name in _LOG_FILES:
            try:
                reason = self._run(
                    child.profile_module,
                    log_name=log_name,
                    timeout_seconds=deadline - time.monotonic(),
                    example_count=self._example_count,
                )
                return MissingMeasurement(reason=reason) if reason else None
            except errors.ChildError as error:
                _LOGGER.warning("The profile was cut off. %s", error)
                if not place.exists():
                    reason = f"its process {error.cause} before a training step was run"
                    return MissingMeasurement(reason=reason, may_pass=True)
                reached = ProfileProgress.read(place).cut_off(_status_of(error), error.cause)
                reached.write(place)
                if reached == before or time.monotonic() >= deadline:
                    break
                before = reached
        return None

    def _completed(self, profiled: ProfileRecord) -> ProfileRecord:
        """Returns the record with training's footprints and the largest batch that they allow."""
        counts = filter(None, [self._example_count, profiled.epoch_example_count])
        most = min(counts, default=largest_batch.ENOUGH)
        steps = [step for step in profiled.steps if step.plan == "plain"]
        taken, remark = self._footprints(profiled, most=most)
        limits = filter(None, (item.limit_bytes for item in taken))
        limit_bytes = min([profiled.memory_limit_bytes, *limits])
        claim = largest_batch.claim(taken, limit_bytes=limit_bytes, most=most, steps=steps)
        return profiled.model_copy(
            update={
                "footprints": tuple(sorted(taken, key=lambda item: item.batch_size)),
                "largest_batch_size": claim.largest,
                "largest_is_lower_bound": claim.is_lower_bound,
                "largest_remark": claim.remark + remark,
                "memory_limit_bytes": limit_bytes,
            }
        )

    def _footprints(self, profiled: ProfileRecord, *, most: int) -> tuple[Sequence[Footprint], str]:
        most = max(self._settings.batch_sizes, default=most)
        steps = [step for step in profiled.steps if step.plan == "plain"]
        taken, plan = list(profiled.footprints), profiled.trained_plan or "plain"
        if taken:  # in a process that also profiled the steps
            self._took_seconds = next((item.seconds for item in taken if item.seconds), 0.0)
        else:
            ran = [step.batch_size for step in steps if step.status == "measured"]
            if not ran:
                return [], ""
            user_size = profiled.module_batch_size
            taken += self._take(user_size if user_size in ran else max(ran), plan=plan, most=most)
        for _ in range(_MOST_PROCESSES):
            limits = filter(None, (item.limit_bytes for item in taken))
            limit_bytes = min([profiled.memory_limit_bytes, *limits])
            size = largest_batch.next_size(taken, limit_bytes=limit_bytes, most=most, steps=steps)
            if size is None:
                return taken, ""
            is_far = largest_batch.is_far(taken, size)
            affordable = self._affordable(size, largest_batch.largest(taken))
            if affordable is None or (is_far and not largest_batch.is_quick(taken, size)):
                return taken, "; a larger one would have taken too long"
            taken += self._take(affordable, plan=plan, most=most)
        return taken, ""

    def _take(self, size: int, *, plan: Plan, most: int) -> list[Footprint]:
        """Returns footprints from a separate process, from a batch size on, or why it ended."""
        console.set_status(f"batch size {size:,}: the first steps of training")
        for place in self._folder.glob(child.footprint_file("*")):
            place.unlink()
        ended: dict[str, str] = {}
        try:
            self._run(
                child.measure_footprint,
                plan=plan,
                log_name=f"footprint-{size}.log",
                timeout_seconds=max(0.0, self._deadline - time.monotonic()),
                batch_size=size,
                most=most,
            )
        except errors.ChildError as error:
            ended = {"status": _status_of(error), "reason": f"its process {error.cause}"}
        read = [*map(Footprint.read, self._folder.glob(child.footprint_file("*")))]
        return [
            item.model_copy(update=ended) if item.status == "not run" else item
            for item in read or [Footprint(batch_size=size, status="not run")]
        ]

    def _affordable(self, size: int, last: Footprint) -> int | None:
        """Returns the size, or a smaller one that the time allows; None if that is too small."""
        if last.step_seconds is None:
            return size
        left_seconds = min(
            self._deadline - time.monotonic(), _FOOTPRINT_SHARE * self._settings.timeout_seconds
        )
        steps_seconds = largest_batch.STEPS * last.step_seconds
        # Tracing may take most of the remaining time, whatever the batch size.
        per_batch = (left_seconds - self._took_seconds + steps_seconds) / steps_seconds
        most = int(last.batch_size * per_batch)
        if most < size and most < _WORTH_IT * last.batch_size:
            return None
        return min(size, most)


def _status_of(error: errors.ChildError) -> Status:
    if isinstance(error, errors.TimedOutError):
        return "timed out"
    return "killed" if isinstance(error, errors.ProcessEndedError) else "failed"
