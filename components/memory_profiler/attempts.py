"""The parent's side of MemoryProfiler: measures in children, and keeps what those leave behind."""

import logging
import pathlib
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

from tfx_perf import activity, errors, unmeasured
from tfx_perf.components.memory_profiler import jobs
from tfx_perf.components.processes import child
from tfx_perf.memory import claim, footprint, peak, profile, record
from tfx_perf.memory import progress as progress_lib
from tfx_perf.memory.progress import ProfileProgress
from tfx_perf.memory.record import Footprint, ProfileRecord, Status
from tfx_perf.settings.memory import MemorySettings

# A step, the look at fragmentation and the compiler may be killed; the others are gone on with.
_LOG_FILES = "profile.log", "profile-2.log", "profile-3.log", "profile-4.log"
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
            except errors.MeasurementError as error:
                _LOGGER.warning("The profile was cut off. %s", error)
                if not place.exists():
                    reason = f"its process {_cause_of(error)} before a training step was run"
                    return unmeasured.Unmeasured(reason=reason)
                reached = ProfileProgress.read(place)
                reached.cut_off(_status_of(error), _cause_of(error)).replace(place)
                if reached.running is not None and time.monotonic() < deadline:
                    continue
            break
        found = self._found(place)
        return self._with_footprints(found) if isinstance(found, ProfileRecord) else found

    def _found(self, place: pathlib.Path) -> ProfileRecord | unmeasured.Unmeasured:
        reason = unmeasured.reason_in(self._folder)
        if reason:
            return unmeasured.Unmeasured(reason=reason)
        whole = self._folder / record.FILE_NAME
        if whole.exists():
            return ProfileRecord.read(whole)
        try:
            return profile.completed(ProfileProgress.read(place))
        except errors.MeasurementError as error:
            return unmeasured.Unmeasured(reason=str(error))

    def _with_footprints(self, found: ProfileRecord) -> ProfileRecord:
        """Returns the record with what training takes, and what that says of the largest batch."""
        steps = [step for step in found.steps if step.plan == "plain"]
        ran = [step.batch_size for step in steps if step.status == "measured"]
        taken: list[Footprint] = []
        limit_bytes, remark = found.memory_limit_bytes, ""
        size = found.module_batch_size if found.module_batch_size in ran else max(ran, default=None)
        while size is not None:
            began = time.monotonic()
            taken.append(self._footprint(size))
            limit_bytes = min([limit_bytes, *(item.limit_bytes or limit_bytes for item in taken)])
            size = claim.next_size(taken, limit_bytes=limit_bytes, steps=steps)
            if len(taken) > _FURTHER_FOOTPRINTS:
                break
            if size is not None:
                size = self._affordable(size, taken[-1], took_seconds=time.monotonic() - began)
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

    def _footprint(self, size: int) -> Footprint:
        activity.say(f"batch size {size:,}: the first steps of training")
        place = self._folder / jobs.footprint_file(size)
        try:
            self._run(
                jobs.measure_footprint,
                log_name=f"footprint-{size}.log",
                timeout_seconds=max(0.0, self._deadline - time.monotonic()),
                batch_size=size,
            )
        except errors.MeasurementError as error:
            if not place.exists():  # else it was stopped at the limit
                reason = f"its process {_cause_of(error)}"
                return Footprint(batch_size=size, status=_status_of(error), reason=reason)
        return Footprint.read(place)

    def _affordable(self, size: int, last: Footprint, *, took_seconds: float) -> int | None:
        """Returns the batch, or a smaller one if it would take too long; None if that is too small.

        Args:
            size: to train on.
            last: what was trained on before; a step is taken to need time by its examples. If
                its time is not known, any size is worth a try.
            took_seconds: from the start of its process to the end, most of which may be for
                tracing, whatever the size.
        """
        left_seconds = min(
            self._deadline - time.monotonic(), _FOOTPRINT_SHARE * self._settings.timeout_seconds
        )
        if last.step_seconds is None:
            return size
        steps_seconds = footprint.STEPS * last.step_seconds
        most = int(last.batch_size * (left_seconds - took_seconds + steps_seconds) / steps_seconds)
        if most < size and most < _WORTH_IT * last.batch_size:
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
        return child.run_in_child(
            f"{jobs.__name__}:{job.__name__}",
            {**self._given, **arguments},
            timeout_seconds=timeout_seconds,
            log_path=self._folder / log_name,
            environment=environment,
            from_server=True,
        )


def _status_of(error: errors.MeasurementError) -> Status:
    if isinstance(error, errors.TimedOutError):
        return "timed out"
    return "killed" if isinstance(error, errors.ProcessEndedError) else "failed"


def _cause_of(error: errors.MeasurementError) -> str:
    """Returns what happened to the child, as a phrase."""
    return str(error).partition(" Log: ")[0].partition(" ")[2].rstrip(".")
