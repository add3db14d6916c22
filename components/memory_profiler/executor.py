"""Profiles the user's training step in processes of its own, and publishes the result."""

import contextlib
import logging
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils
from tfx.utils import json_utils

from tfx_perf import isolate
from tfx_perf.components import artifacts, trainer_args
from tfx_perf.components.memory_profiler import child
from tfx_perf.config import MemorySettings, PerfConfig
from tfx_perf.core import console, errors, storage, unmeasured
from tfx_perf.hardware import host
from tfx_perf.memory import footprint, largest_batch, peak, profile, record
from tfx_perf.memory.record import Footprint, ProfileProgress, ProfileRecord, Status
from tfx_perf.report import memory as memory_report

_Artifacts = dict[str, list[artifact.Artifact]]
# A step, the look at fragmentation and the compiler may be killed, and a footprint beside them; the
# others are gone on with.
_LOG_FILES = tuple(f"profile{end}.log" for end in ("", "-2", "-3", "-4", "-5"))
_STEPS_SHARE = 0.5  # of the time; the rest is for the footprints
_MOST_FOOTPRINTS = 4
_FOOTPRINT_SHARE = 0.25  # of the time, that one beyond the first may take
_SHORTEST_STEP_SECONDS = 1e-6
_WORTH_IT = 2  # times the batch before; less would say little
_LOGGER = logging.getLogger(__name__)


class Executor(base_executor.BaseExecutor):
    """Profiles in child processes and publishes what it found."""

    def Do(  # noqa: N802 (TFX's name)
        self, input_dict: _Artifacts, output_dict: _Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Profiles the user's training step; the artifact has what was measured, or the reason."""
        exec_properties = trainer_args.with_train_steps(exec_properties)
        settings = PerfConfig.from_json(exec_properties["config"]).memory
        target = artifact_utils.get_single_instance(output_dict["memory_profile"])
        storage.path(target.uri)  # a store without its driver is said at once
        origin = artifacts.origin_of(self._context, input_dict)
        with tempfile.TemporaryDirectory(prefix="memory-profiler-") as name:
            folder = pathlib.Path(name)
            found = Attempts(
                json_utils.dumps(input_dict), exec_properties, settings=settings, folder=folder
            ).profile()
            if isinstance(found, unmeasured.Unmeasured):
                artifacts.publish_unmeasured(
                    target,
                    found.reason,
                    title=memory_report.TITLE,
                    labels={"not_measured": found.reason},
                    may_pass=found.may_pass,
                    origin=origin,
                )
            else:
                artifacts.publish(
                    target,
                    found,
                    file_name=record.FILE_NAME,
                    figures=found.figures(),
                    labels={
                        "keras": found.keras,
                        "device": found.device,
                        "batch_sizes": "; ".join(
                            f"{size}: {status}" for size, status in found.endings.items()
                        ),
                    },
                    page=memory_report.report_on(found),
                    origin=origin,
                    remark=found.remark,
                )
            for log in sorted(folder.glob("*.log")):
                storage.copy(log, target.uri)


class _Finished(NamedTuple):
    """A footprint, and how long its process took, from the start to the end."""

    footprint: Footprint
    took_seconds: float


class Attempts:
    """Profiles a module within a time, whatever becomes of the processes that do it."""

    def __init__(
        self,
        inputs: str,
        exec_properties: Mapping[str, Any],
        *,
        settings: MemorySettings,
        folder: pathlib.Path,
    ) -> None:
        self._inputs = inputs
        self._given: Mapping[str, Any] = {
            "inputs": inputs,
            "exec_properties": dict(exec_properties),
            "folder": str(folder),
        }
        self._settings, self._folder = settings, folder
        self._progress_file = folder / record.PROGRESS_FILE_NAME
        self._deadline = time.monotonic() + settings.timeout_seconds
        self._first: isolate.Child | None = None
        self._first_began = 0.0

    def profile(self) -> ProfileRecord | unmeasured.Unmeasured:
        """Returns the profile, or why there is none."""
        with self._first_footprint_beside():
            reason = self._run_steps()
            if reason is not None:
                return unmeasured.Unmeasured(reason=reason, may_pass=True)
            found = self._found()
            return found if isinstance(found, unmeasured.Unmeasured) else self._completed(found)

    def _started(
        self,
        job: Callable[..., Any],
        *,
        log_name: str,
        environment: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> contextlib.AbstractContextManager[isolate.Child]:
        """Starts a job of `child`, which runs while the context lasts."""
        return isolate.started(
            f"{child.__name__}:{job.__name__}",
            {**self._given, **arguments},
            log_path=self._folder / log_name,
            environment=environment,
            is_forked=True,
        )

    def _run_steps(self) -> str | None:
        """Profiles the steps; returns why not even one ran, None if one did."""
        deadline = time.monotonic() + _STEPS_SHARE * self._settings.timeout_seconds
        place = self._progress_file
        for log_name in _LOG_FILES:
            try:
                with self._started(
                    child.profile_module, log_name=log_name, environment=peak.ENVIRONMENT
                ) as process:
                    process.result(timeout_seconds=deadline - time.monotonic())
            except errors.ChildError as error:
                _LOGGER.warning("The profile was cut off. %s", error)
                was_alone = self._first is None
                self._give_up_first()
                if isinstance(error, errors.ProcessEndedError) and not was_alone:
                    continue  # with all of the memory
                if not place.exists():
                    return f"its process {error.cause} before a training step was run"
                reached = ProfileProgress.read(place)
                reached.cut_off(_status_of(error), error.cause).write(place)
                if reached.running is not None and time.monotonic() < deadline:
                    continue
            break
        return None

    def _found(self) -> ProfileRecord | unmeasured.Unmeasured:
        nothing = self._folder / unmeasured.FILE_NAME
        if nothing.exists():
            return unmeasured.Unmeasured.read(nothing)
        try:
            return profile.completed(ProfileProgress.read(self._progress_file))
        except errors.MeasurementError as error:
            return unmeasured.Unmeasured(reason=str(error), may_pass=True)

    def _completed(self, found: ProfileRecord) -> ProfileRecord:
        """Returns the record with the footprints of training and the largest batch by these."""
        tuned = trainer_args.input_plan(json_utils.loads(self._inputs))
        counts = filter(None, [tuned.example_count if tuned else None, found.epoch_example_count])
        most = min(counts, default=largest_batch.ENOUGH)
        steps = [step for step in found.steps if step.plan == "plain"]
        taken, limit_bytes, remark = self._footprints(found, most=most)
        said = largest_batch.claim(taken, limit_bytes=limit_bytes, most=most, steps=steps)
        return found.model_copy(
            update={
                "footprints": tuple(sorted(taken, key=lambda item: item.batch_size)),
                "largest_batch_size": said.largest,
                "largest_is_lower_bound": said.is_lower_bound,
                "largest_remark": said.remark + remark,
                "memory_limit_bytes": limit_bytes,
            }
        )

    def _footprints(
        self, found: ProfileRecord, *, most: int
    ) -> tuple[Sequence[Footprint], int, str]:
        """Returns footprints of batches up to `most`, their limit, and why none is larger."""
        most = max(self._settings.batch_sizes, default=most)
        steps = [step for step in found.steps if step.plan == "plain"]
        ran = [step.batch_size for step in steps if step.status == "measured"]
        size = found.module_batch_size if found.module_batch_size in ran else max(ran, default=None)
        if size is None:
            return [], found.memory_limit_bytes, ""
        beside = self._finished_beside()
        done = [beside[each] for each in sorted(beside)] if size in beside else []
        limits = filter(None, (each.footprint.limit_bytes for each in done))
        limit_bytes = min([found.memory_limit_bytes, *limits])
        alone: list[int] = []  # limits; what goes on beside takes of the memory, too
        while True:
            if size not in beside:
                done.append(self._finished(size))
                alone += filter(None, [done[-1].footprint.limit_bytes])
                limit_bytes = min(alone, default=limit_bytes)
            taken = [each.footprint for each in done]
            larger = largest_batch.next_size(
                taken, limit_bytes=limit_bytes, most=most, steps=steps
            )
            if larger is None or len(done) == _MOST_FOOTPRINTS:
                return taken, limit_bytes, ""
            size = self._affordable(larger, done[-1])
            if size is None:
                return taken, limit_bytes, "; a larger one would have taken too long"

    @contextlib.contextmanager
    def _first_footprint_beside(self) -> Iterator[None]:
        """Takes the first footprint beside the context's work if there is only host memory."""
        if host.may_have_accelerators():
            yield
            return
        self._first_began = time.time()
        with self._started(
            child.measure_footprint, log_name="footprint-own.log", batch_size=None
        ) as self._first:
            yield

    def _give_up_first(self) -> None:
        if self._first is not None:
            self._first.end()
        self._first = None

    def _finished_beside(self) -> dict[int, _Finished]:
        """Returns the footprints by batch size that need not be taken again, alone."""
        if self._first is None:
            return {}
        with contextlib.suppress(errors.ChildError, errors.UserError):
            self._first.result(timeout_seconds=self._left_seconds)
        found = {}
        for place in self._folder.glob(child.footprint_file("*")):
            item = Footprint.read(place)
            if item.status == "measured" and largest_batch.is_far_from_limit(item):
                took_seconds = place.stat().st_mtime - self._first_began
                found[item.batch_size] = _Finished(item, took_seconds=took_seconds)
        return found

    def _finished(self, size: int) -> _Finished:
        console.set_status(f"batch size {size:,}: the first steps of training")
        began = time.monotonic()
        place = self._folder / child.footprint_file(size)
        place.unlink(missing_ok=True)  # of the process beside
        try:
            with self._started(
                child.measure_footprint, log_name=f"footprint-{size}.log", batch_size=size
            ) as process:
                process.result(timeout_seconds=self._left_seconds)
        except errors.ChildError as error:
            if not place.exists():  # else it was stopped at the limit
                status, reason = _status_of(error), f"its process {error.cause}"
                ended = Footprint(batch_size=size, status=status, reason=reason)
                return _Finished(ended, took_seconds=time.monotonic() - began)
        return _Finished(Footprint.read(place), took_seconds=time.monotonic() - began)

    @property
    def _left_seconds(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _affordable(self, size: int, last: _Finished) -> int | None:
        """Returns the batch, or a smaller one for which there is time; None if it is too small."""
        if last.footprint.step_seconds is None:
            return size
        left_seconds = min(self._left_seconds, _FOOTPRINT_SHARE * self._settings.timeout_seconds)
        # Of a step too short to be told from the rest of a `fit`, 0.
        steps_seconds = footprint.STEPS * max(last.footprint.step_seconds, _SHORTEST_STEP_SECONDS)
        # Most of the rest may be for tracing, whatever the size.
        per_batch = (left_seconds - last.took_seconds + steps_seconds) / steps_seconds
        most = int(last.footprint.batch_size * per_batch)
        if most < size and most < _WORTH_IT * last.footprint.batch_size:
            return None
        return min(size, most)


def _status_of(error: errors.ChildError) -> Status:
    if isinstance(error, errors.TimedOutError):
        return "timed out"
    return "killed" if isinstance(error, errors.ProcessEndedError) else "failed"
