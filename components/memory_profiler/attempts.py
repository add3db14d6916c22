"""The parent's side of MemoryProfiler: measures in children, and keeps what those leave behind."""

import logging
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from tfx.utils import json_utils

from tfx_perf import errors, unmeasured
from tfx_perf.components.memory_profiler import footprints, jobs, processes
from tfx_perf.components.training_job import trainer_args
from tfx_perf.memory import peak, profile, record
from tfx_perf.memory import progress as progress_lib
from tfx_perf.memory.progress import ProfileProgress
from tfx_perf.memory.record import ProfileRecord
from tfx_perf.settings.memory import MemorySettings

# A step, the look at fragmentation and the compiler may be killed, and a footprint beside them; the
# others are gone on with.
_LOG_FILES = tuple(f"profile{end}.log" for end in ("", "-2", "-3", "-4", "-5"))
_STEPS_SHARE = 0.5  # of the time; the rest is for the footprints

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
        given = {
            "inputs": inputs,
            "exec_properties": dict(exec_properties),
            "folder": str(folder),
        }
        self._input_dict = json_utils.loads(inputs)
        self._processes = processes.Processes(given, folder=folder)
        self._settings = settings
        self._folder = folder
        self._footprints = footprints.Footprints(
            self._processes, timeout_seconds=settings.timeout_seconds
        )

    def profile(self) -> ProfileRecord | unmeasured.Unmeasured:
        """Returns what was found out, or why nothing was.

        Raises:
            UserError: the module, a split or the examples are not as they must be.
        """
        with self._footprints.first_beside():
            reason = self._run_steps()
            if reason is not None:
                return unmeasured.Unmeasured(reason=reason, may_pass=True)
            found = self._found()
            if isinstance(found, unmeasured.Unmeasured):
                return found
            tuned = trainer_args.input_plan(self._input_dict)
            return self._footprints.added_to(
                found,
                asked=self._settings.batch_sizes,
                example_count=tuned.example_count if tuned else None,
            )

    def _run_steps(self) -> str | None:
        """Has the steps profiled; returns why not even one was run, None if one was."""
        deadline = time.monotonic() + _STEPS_SHARE * self._settings.timeout_seconds
        place = self._folder / progress_lib.FILE_NAME
        for log_name in _LOG_FILES:
            try:
                self._processes.run(
                    jobs.profile_module,
                    log_name=log_name,
                    timeout_seconds=deadline - time.monotonic(),
                    environment=peak.ENVIRONMENT,
                )
            except errors.ChildError as error:
                _LOGGER.warning("The profile was cut off. %s", error)
                was_alone = not self._footprints.give_up_first()
                if isinstance(error, errors.ProcessEndedError) and not was_alone:
                    continue  # with all of the memory
                if not place.exists():
                    return f"its process {error.cause} before a training step was run"
                reached = ProfileProgress.read(place)
                reached.cut_off(processes.status_of(error), error.cause).write(place)
                if reached.running is not None and time.monotonic() < deadline:
                    continue
            break
        return None

    def _found(self) -> ProfileRecord | unmeasured.Unmeasured:
        nothing = self._folder / unmeasured.FILE_NAME
        if nothing.exists():
            return unmeasured.Unmeasured.read(nothing)
        whole = self._folder / record.FILE_NAME
        if whole.exists():
            return ProfileRecord.read(whole)
        try:
            return profile.completed(
                ProfileProgress.read(self._folder / progress_lib.FILE_NAME)
            )
        except errors.MeasurementError as error:
            return unmeasured.Unmeasured(reason=str(error), may_pass=True)
