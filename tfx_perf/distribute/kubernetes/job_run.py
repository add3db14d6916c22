"""A job of workers from its creation to its deletion."""

import logging
import pathlib
import shutil
import time
from collections.abc import Callable
from typing import Any, NoReturn

from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, workers
from tfx_perf.distribute import failure
from tfx_perf.distribute.kubernetes import manifests
from tfx_perf.distribute.kubernetes.job_api import JobApi
from tfx_perf.distribute.kubernetes.job_kind import Pod

# How long to wait for the pods of a deleted job to end. Kubernetes gives half a minute to each of
# them, and to this process's pod.
_END_SECONDS = 20.0
# The same before another attempt: a pod of a lost machine may take longer to end.
_AGAIN_SECONDS = 300.0
_POLL_SECONDS = 10.0  # between two looks at the job
_END_POLL_SECONDS = 0.5
_LINES = 10_000
_RECENT_LINES = 200  # of each pod that still runs, at each look
_FAILURES = (errors.UserError, errors.MeasurementError)

_LOGGER = logging.getLogger(__name__)


class JobRun:
    """Runs one job, or takes over that of a killed process; begins again after failures."""

    def __init__(
        self,
        api: JobApi,
        settings: DistributionSettings,
        *,
        manifest: dict[str, Any],
        folder: pathlib.Path,
        has_result: Callable[[], bool],
        log_folder: pathlib.Path,
    ) -> None:
        """Prepares a job of workers that share a folder; `has_result` looks for a result in it."""
        assert settings.job is not None
        self._api, self._settings, self._manifest = api, settings.job, manifest
        self._folder, self._has_result = folder, has_result
        self._log_folder = log_folder
        self._restarts = settings.restarts
        self._deadline: float | None = None  # for all jobs together
        self._kind = api.kind
        self._name = manifest["metadata"]["name"]
        self._title = f"{api.kind.name} {self._name}"
        self._is_begun = self._is_prepared = False
        self._logs = WorkerLogs(api, self._name)  # of the job that runs now

    def run(
        self, *, prepare: Callable[[], None], collect: Callable[[tuple[str, ...]], None]
    ) -> None:
        """Runs the job to its end, in whatever way it ends, and deletes it.

        `prepare` fills the folder before a job is created. `collect` takes the results out of it,
        given sentences on earlier failures. It is called before the job is deleted, so that another
        attempt finds the job if this one is killed meanwhile.
        """
        try:
            notes = failure.until_done(
                lambda: self._wait(self._start(prepare)),
                folder=self._folder,
                restarts=self._restarts,
                end=lambda: self._delete(_AGAIN_SECONDS),  # a new pod alone cannot join the others
            )
            self._logs.keep(folder=self._log_folder)
            collect(notes)
        finally:
            self._api.pause = time.sleep  # an exception from it must not end the deletion
            if self._is_begun and self._delete(_END_SECONDS):
                shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, prepare: Callable[[], None]) -> str:
        job = self._api.get(self._name)
        if job is not None and not self._is_ours(job):
            raise errors.UserError(
                f"Expected an unused job name. Received: {self._title}, which belongs to another "
                "training. Delete it."
            )
        self._is_begun = True
        owner = self._owner()
        if job is not None and self._can_be_used(job):
            self._take_over(job, owner)
            _LOGGER.info("Found %s of an earlier attempt; waiting for it.", self._title)
            return job["metadata"]["uid"]
        if job is not None:
            _LOGGER.info("Deleting %s of an earlier attempt, which cannot be used.", self._title)
            self._delete(_END_SECONDS)
        if not self._is_prepared:
            prepare()
            self._is_prepared = True
        if owner:
            self._manifest["metadata"]["ownerReferences"] = [owner]
        job = self._api.create(self._manifest) or self._api.get(self._name)
        if job is None:
            self._raise_gone()
        _LOGGER.info("%s is created.", self._title)
        return job["metadata"]["uid"]

    def _owner(self) -> dict[str, str] | None:
        """Returns this pod, with which the job ends if no process is left to delete it."""
        try:
            return self._api.owner()
        except errors.UserError as error:
            _LOGGER.warning("%s would outlive this pod if that is deleted. %s", self._title, error)
            return None

    def _take_over(self, job: dict[str, Any], owner: dict[str, str] | None) -> None:
        """Makes this pod an owner of the job, which then outlives the pod that created it."""
        owners = job["metadata"].get("ownerReferences", [])
        if owner is None or any(each["uid"] == owner["uid"] for each in owners):
            return
        try:
            self._api.set_owners(self._name, [*owners, owner])
        except errors.UserError as error:
            _LOGGER.warning(
                "%s ends when the pod of the earlier attempt is deleted. %s", self._title, error
            )

    def _can_be_used(self, job: dict[str, Any]) -> bool:
        if "deletionTimestamp" in job["metadata"] or not self._folder.exists():
            return False
        state, _ = self._state(job)
        if state == self._kind.succeeded:
            return self._has_result()
        return state != "Failed"

    def _is_ours(self, job: dict[str, Any]) -> bool:
        digest = self._manifest["metadata"]["labels"][manifests.DIGEST_LABEL]
        return job["metadata"].get("labels", {}).get(manifests.DIGEST_LABEL) == digest

    def _wait(self, uid: str) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._settings.timeout_seconds
        self._logs = WorkerLogs(self._api, self._name)
        shown = None
        while True:
            job = self._api.get(self._name)
            if job is None or job["metadata"]["uid"] != uid:
                self._raise_gone()
            state, message = self._state(job)
            if state != shown:
                _LOGGER.info("%s: %s", self._title, " ".join(f"{state}. {message}".split()))
                shown = state
            if state == self._kind.succeeded:
                return
            if state == "Failed":
                self._raise_failed(message)
            self._logs.look()
            if len(self._logs.started_again) > self._restarts:
                self._raise_restarted()
            if time.monotonic() > self._deadline:
                self._raise_late(state)
            self._api.pause(_POLL_SECONDS)

    def _state(self, job: dict[str, Any]) -> tuple[str, str]:
        conditions = job.get("status", {}).get("conditions") or []
        holding = [each for each in conditions if each.get("status") == "True"]
        for each in holding:
            if each["type"] in ("Failed", self._kind.succeeded):
                return each["type"], each.get("message") or each.get("reason") or ""
        if not holding:
            return "Pending", ""
        return holding[-1]["type"], holding[-1].get("message") or ""

    def _raise_gone(self) -> NoReturn:
        raise errors.MeasurementError(
            f"Expected {self._title} to run to its end. Received: it no longer exists; it "
            "was deleted."
        )

    def _raise_late(self, state: str) -> NoReturn:
        pods = ", ".join(f"{pod.name} {pod.state}" for pod in self._logs.pods) or "none"
        raise errors.MeasurementError(
            f"Expected {self._title} to end within distribution.job.timeout_seconds="
            f"{self._settings.timeout_seconds}. Received: state={state}, pods: {pods}."
        )

    def _raise_restarted(self) -> NoReturn:
        """Raises after too many restarts by the operator, which does not count them."""
        again = self._logs.started_again
        counts = f"{len(again)} pods were started again, and distribution.restarts={self._restarts}"
        cause = failure.WorkerFailure(name=again[-1].task, message=counts, may_pass=True)
        logs = self._logs.keep(folder=self._log_folder)
        raise failure.failed(self._title, cause, log=logs.get(cause.name))

    def _raise_failed(self, message: str) -> NoReturn:
        logs = self._logs.keep(folder=self._log_folder)
        endings = {
            pod.task: f"{message} {pod.name} {pod.state}"
            for pod in self._logs.pods
            if pod.has_failed
        }
        cause = failure.cause_of(failure.left_in(self._folder), endings, message=message)
        if not cause.name:
            told = f"{message} {self._account()}"
            cause = cause.model_copy(update={"message": told})
        raise failure.failed(self._title, cause, log=logs.get(cause.name))

    def _account(self) -> str:
        """Returns sentences on the circumstances, if no worker is known to have failed."""
        seen = ", ".join(f"{pod.name} (last seen {pod.state})" for pod in self._logs.pods)
        if not seen:
            account = "None of its pods has been seen."
        elif self._logs.gone:
            account = f"The pods were gone before their logs could be read to the end: {seen}."
        else:
            account = f"None of its pods is known to have failed: {seen}."
        events = self._logs.events()
        return f"{account} Its events: {events}." if events else account

    def _delete(self, patience_seconds: float) -> bool:
        """Deletes the job and waits a little for its end; returns whether it is deleted."""
        deadline = time.monotonic() + patience_seconds
        try:
            self._api.delete(self._name)
            while self._api.get(self._name) is not None:
                if time.monotonic() > deadline:
                    _LOGGER.warning("%s is deleted, but its pods have not ended.", self._title)
                    break
                self._api.pause(_END_POLL_SECONDS)
        except (errors.UserError, errors.MeasurementError) as error:
            _LOGGER.warning("%s could not be deleted; please do it. %s", self._title, error)
            return False
        return True


class WorkerLogs:
    """The pods of a job and their output, also of pods that were deleted with their logs.

    They only explain failures, so that nothing depends on having them.
    `started_again` are the pods that were seen to replace others.
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
        """The last pod of each task, as it was last seen."""
        return list(self._pods.values())

    @property
    def gone(self) -> list[Pod]:
        """Those of `pods` that no longer exist."""
        return [pod for pod in self.pods if pod.uid not in self._present]

    def look(self) -> None:
        """Reads pods and logs, without retries: there will be another look."""
        self._read(is_patient=False)

    def keep(self, *, folder: pathlib.Path) -> dict[str, str]:
        """Writes the processes' output to `worker-0.log` and so on; returns it by process name."""
        self._read(is_patient=True)
        folder.mkdir(parents=True, exist_ok=True)
        for task, text in self._texts.items():
            (folder / workers.log_file(task)).write_text(text, encoding="utf-8")
        return dict(self._texts)

    def events(self) -> str:
        """Returns the cluster's events about the job in one line; empty if there are none."""
        try:
            return "; ".join(self._api.events(self._job_name))
        except _FAILURES as error:
            self._warn(f"The events of {self._job_name} cannot be listed.", error)
            return ""

    def _read(self, *, is_patient: bool) -> None:
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
                self._read_log(pod, is_patient=is_patient)

    def _read_log(self, pod: Pod, *, is_patient: bool) -> None:
        lines = _LINES if is_patient or pod.has_ended else _RECENT_LINES
        try:
            text = self._api.log(pod, line_count=lines, is_patient=is_patient)
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
