"""The parent's side of MemoryProfiler: measures in children, and keeps what those leave behind."""

import contextlib
import dataclasses
import logging
import pathlib
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfx_perf import activity, errors, unmeasured
from tfx_perf.components.memory_profiler import jobs
from tfx_perf.components.processes import child
from tfx_perf.hardware import host
from tfx_perf.memory import claim, footprint, peak, profile, record
from tfx_perf.memory import progress as progress_lib
from tfx_perf.memory.progress import ProfileProgress
from tfx_perf.memory.record import Footprint, ProfileRecord, Status
from tfx_perf.settings.memory import MemorySettings

# A step, the look at fragmentation and the compiler may be killed; the others are gone on with.
_LOG_FILES = tuple(f"profile{end}.log" for end in ("", "-2", "-3", "-4", "-5"))
_STEPS_SHARE = 0.5  # of the time; the rest is for the footprints
_FURTHER_FOOTPRINTS = 2  # beside the one at the module's batch size
_FOOTPRINT_SHARE = 0.25  # of the time, that one of these may take
_WORTH_IT = 2  # times the batch before; less would say little

_LOGGER = logging.getLogger(__name__)


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
        """Starts the time.

        Args:
            inputs: Trainer's input artifacts, by `tfx.utils.json_utils`.
            exec_properties: see `Executor.Do`.
            settings: with the time.
            folder: where the children write to, and their logs go.
        """
        self._given = {
            "inputs": inputs,
            "exec_properties": dict(exec_properties),
            "folder": str(folder),
        }
        self._settings = settings
        self._folder = folder
        self._deadline = time.monotonic() + settings.timeout_seconds

    def profile(self) -> ProfileRecord | unmeasured.Unmeasured:
        """Returns what was found out, or why nothing was.

        Raises:
            UserError: the module, a split or the examples are not as they must be.
        """
        with self._first_footprint() as beside:
            reason = self._run_steps(beside)
            found = self._found() if reason is None else unmeasured.Unmeasured(reason=reason)
            if isinstance(found, unmeasured.Unmeasured):
                return found
            first = None if beside is None else beside.finished(deadline=self._deadline)
        return self._with_footprints(found, first)

    @contextlib.contextmanager
    def _first_footprint(self) -> Iterator["_Beside | None"]:
        """Begins the footprint at the module's own batch size, while the steps are profiled.

        Both are one thread's work for the most part: the user's code, and tracing. Where there may
        be an accelerator there is none: two processes would not both have its memory.
        """
        if host.may_have_accelerators():
            yield None
            return
        began = time.monotonic()
        with self._started(
            jobs.measure_footprint, log_name="footprint-own.log", batch_size=None
        ) as process:
            yield _Beside(process, self._folder / jobs.footprint_file(None), began=began)

    def _run_steps(self, beside: "_Beside | None") -> str | None:
        """Has the steps profiled; returns why not even one was run, None if one was."""
        deadline = time.monotonic() + _STEPS_SHARE * self._settings.timeout_seconds
        place = self._folder / progress_lib.FILE_NAME
        for log_name in _LOG_FILES:
            try:
                self._run(
                    jobs.profile_module,
                    log_name=log_name,
                    timeout_seconds=deadline - time.monotonic(),
                    environment=peak.ENVIRONMENT,
                )
            except errors.ChildError as error:
                _LOGGER.warning("The profile was cut off. %s", error)
                if beside is not None and beside.give_up() and _is_for_memory(error):
                    continue  # with all of the memory
                if not place.exists():
                    return f"its process {error.cause} before a training step was run"
                reached = ProfileProgress.read(place)
                reached.cut_off(_status_of(error), error.cause).replace(place)
                if reached.running is not None and time.monotonic() < deadline:
                    continue
            break
        return None

    def _found(self) -> ProfileRecord | unmeasured.Unmeasured:
        reason = unmeasured.reason_in(self._folder)
        if reason:
            return unmeasured.Unmeasured(reason=reason)
        whole = self._folder / record.FILE_NAME
        if whole.exists():
            return ProfileRecord.read(whole)
        try:
            return profile.completed(
                ProfileProgress.read(self._folder / progress_lib.FILE_NAME)
            )
        except errors.MeasurementError as error:
            return unmeasured.Unmeasured(reason=str(error))

    def _with_footprints(
        self, found: ProfileRecord, first: "_Finished | None"
    ) -> ProfileRecord:
        """Returns the record with what training takes, and what that says of the largest batch.

        Args:
            found: the record of the steps.
            first: what is known already.
        """
        steps = [step for step in found.steps if step.plan == "plain"]
        ran = [step.batch_size for step in steps if step.status == "measured"]
        taken: list[Footprint] = []
        limit_bytes, remark = found.memory_limit_bytes, ""
        size = found.module_batch_size if found.module_batch_size in ran else max(ran, default=None)
        while size is not None:
            if first is not None and first.footprint.batch_size == size:
                done = first
            else:
                done = self._finished(size)
            taken.append(done.footprint)
            limit_bytes = min([limit_bytes, *(item.limit_bytes or limit_bytes for item in taken)])
            size = claim.next_size(taken, limit_bytes=limit_bytes, steps=steps)
            if len(taken) > _FURTHER_FOOTPRINTS:
                break
            if size is not None:
                size = self._affordable(size, done)
                remark = "" if size else "; a larger one would have taken too long"
        said = claim.claim(taken, limit_bytes=limit_bytes, steps=steps)
        return found.model_copy(
            update={
                "footprints": tuple(sorted(taken, key=lambda item: item.batch_size)),
                "footprint_line": said.line,
                "largest_batch_size": said.largest,
                "largest_is_lower_bound": said.is_lower_bound,
                "largest_remark": said.remark + remark,
                "memory_limit_bytes": limit_bytes,
            }
        )

    def _finished(self, size: int) -> "_Finished":
        """Returns the footprint at a batch size, whatever becomes of its process."""
        activity.say(f"batch size {size:,}: the first steps of training")
        began = time.monotonic()
        place = self._folder / jobs.footprint_file(size)
        try:
            self._run(
                jobs.measure_footprint,
                log_name=f"footprint-{size}.log",
                timeout_seconds=max(0.0, self._deadline - time.monotonic()),
                batch_size=size,
            )
        except errors.ChildError as error:
            if not place.exists():  # else it was stopped at the limit
                reason = f"its process {error.cause}"
                ended = Footprint(batch_size=size, status=_status_of(error), reason=reason)
                return _Finished(ended, took_seconds=time.monotonic() - began)
        return _Finished(Footprint.read(place), took_seconds=time.monotonic() - began)

    def _affordable(self, size: int, last: "_Finished") -> int | None:
        """Returns the batch, or a smaller one if it would take too long; None if that is too small.

        Args:
            size: to train on.
            last: what was trained on before; a step is taken to need time by its examples. If
                its time is not known, any size is worth a try.
        """
        left_seconds = min(
            self._deadline - time.monotonic(), _FOOTPRINT_SHARE * self._settings.timeout_seconds
        )
        if last.footprint.step_seconds is None:
            return size
        steps_seconds = footprint.STEPS * last.footprint.step_seconds
        # Most of the rest may be for tracing, whatever the size.
        per_batch = (left_seconds - last.took_seconds + steps_seconds) / steps_seconds
        most = int(last.footprint.batch_size * per_batch)
        if most < size and most < _WORTH_IT * last.footprint.batch_size:
            return None
        return min(size, most)

    def _run(
        self,
        job: Callable[..., Any],
        *,
        log_name: str,
        timeout_seconds: float,
        environment: Mapping[str, str] = types.MappingProxyType({}),
        **arguments: Any,
    ) -> Any:
        with self._started(job, log_name=log_name, environment=environment, **arguments) as process:
            return process.result(timeout_seconds=timeout_seconds)

    def _started(
        self,
        job: Callable[..., Any],
        *,
        log_name: str,
        environment: Mapping[str, str] = types.MappingProxyType({}),
        **arguments: Any,
    ) -> contextlib.AbstractContextManager[child.Child]:
        return child.started(
            f"{jobs.__name__}:{job.__name__}",
            {**self._given, **arguments},
            log_path=self._folder / log_name,
            environment=environment,
            from_server=True,
        )


@dataclasses.dataclass(frozen=True)
class _Finished:
    """A footprint, and how long its process took, from the start to the end."""

    footprint: Footprint
    took_seconds: float


class _Beside:
    """A footprint that is taken while something else runs."""

    def __init__(self, process: child.Child, place: pathlib.Path, *, began: float) -> None:
        self._process, self._place, self._began = process, place, began
        self._is_given_up = False

    def give_up(self) -> bool:
        """Ends it, so that others have its memory; returns whether it was not ended so before."""
        is_first = not self._is_given_up
        self._is_given_up = True
        self._process.end()
        return is_first

    def finished(self, *, deadline: float) -> _Finished | None:
        """Waits for the footprint; None if there is none, and it has to be taken alone.

        Args:
            deadline: on `time.monotonic`'s clock.
        """
        if self._is_given_up:
            return None
        try:
            self._process.result(timeout_seconds=max(0.0, deadline - time.monotonic()))
            found = Footprint.read(self._place)
        except (errors.ChildError, errors.UserError):
            return None
        if found.status != "measured":
            return None
        return _Finished(found, took_seconds=time.monotonic() - self._began)


def _is_for_memory(error: errors.ChildError) -> bool:
    """Returns whether a process may have been killed because two took too much memory."""
    return isinstance(error, errors.ProcessEndedError)


def _status_of(error: errors.ChildError) -> Status:
    if isinstance(error, errors.TimedOutError):
        return "timed out"
    return "killed" if isinstance(error, errors.ProcessEndedError) else "failed"
