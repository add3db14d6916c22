"""Messages of the workers' pods; they only explain, so that nothing depends on having them."""

import logging
import pathlib

from tfx_perf.core import errors, workers
from tfx_perf.distribute.kubernetes.job_api import JobApi
from tfx_perf.distribute.kubernetes.job_kind import Pod

_LINES = 10_000
_RECENT_LINES = 200  # of what still runs, each time

_FAILURES = (errors.UserError, errors.MeasurementError)

_LOGGER = logging.getLogger(__name__)


class WorkerLogs:
    """The pods of a job and their output, also of pods that were deleted with their logs.

    `started_again` are the pods that took the place of others, as far as they were seen.
    """

    def __init__(self, api: JobApi, job_name: str) -> None:
        self._api, self._job_name = api, job_name
        self._pods: dict[str, Pod] = {}  # by their tasks
        self._texts: dict[str, str] = {}
        self._present: set[str] = set()  # uids
        self._is_whole: set[str] = set()
        self._warned: set[str] = set()
        self.started_again: list[Pod] = []

    @property
    def pods(self) -> list[Pod]:
        """The last one of each task, as it was when it was last seen."""
        return list(self._pods.values())

    @property
    def gone(self) -> list[Pod]:
        """The pods of them that are not there any more."""
        return [pod for pod in self.pods if pod.uid not in self._present]

    def look(self) -> None:
        """Reads what there is, without patience: there is another look."""
        self._read(line_count=_RECENT_LINES, is_patient=False)

    def keep(self, *, folder: pathlib.Path) -> dict[str, str]:
        """Writes the processes' output to `worker-0.log` and so on; returns it by process name."""
        self._read(line_count=_LINES, is_patient=True)
        folder.mkdir(parents=True, exist_ok=True)
        for task, text in self._texts.items():
            (folder / workers.log_file(task)).write_text(text, encoding="utf-8")
        return dict(self._texts)

    def events(self) -> str:
        """Returns the cluster's events about the job in one line; empty if it tells none."""
        try:
            return "; ".join(self._api.events(self._job_name))
        except _FAILURES as error:
            self._warn(f"The events of {self._job_name} cannot be listed.", error)
            return ""

    def _read(self, *, line_count: int, is_patient: bool) -> None:
        try:
            pods = self._api.pods(self._job_name, is_patient=is_patient)
        except _FAILURES as error:
            self._warn(f"The pods of {self._job_name} cannot be listed.", error)
            return
        self._present = {pod.uid for pod in pods}
        for pod in pods:
            before = self._pods.get(pod.task, pod)
            if before.uid != pod.uid:
                self._texts.pop(pod.task, None)
                self.started_again.append(pod)
            self._pods[pod.task] = pod
            if pod.has_log and pod.uid not in self._is_whole:
                lines = _LINES if pod.has_ended else line_count
                self._read_log(pod, line_count=lines, is_patient=is_patient)

    def _read_log(self, pod: Pod, *, line_count: int, is_patient: bool) -> None:
        try:
            text = self._api.log(pod, line_count=line_count, is_patient=is_patient)
        except _FAILURES as error:
            if pod.last_words:
                self._texts.setdefault(pod.task, pod.last_words)
            self._warn(f"The log of {pod.name} cannot be read.", error)
            return
        self._texts[pod.task] = text
        if pod.has_ended:
            self._is_whole.add(pod.uid)

    def _warn(self, what: str, error: Exception) -> None:
        if what not in self._warned:  # once, though it is tried often
            self._warned.add(what)
            _LOGGER.warning("%s %s", what, error)
