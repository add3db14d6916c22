"""A Kubeflow Pipelines server: upload, run, schedule, wait."""

import dataclasses
import datetime
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from tfx_perf.core import errors
from tfx_perf.kubeflow import lint
from tfx_perf.kubeflow.connection import Connection

_CRON_FIELDS = 6
_PAGE_SIZE = 100
_FINISHED = ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELED")


@dataclasses.dataclass(frozen=True)
class Job:
    """A pipeline on the server, and how to run it.

    Attributes:
        pipeline: name of the pipeline.
        version: name of the version; None for the newest.
        name: name of the run or the schedule; None for the pipeline's, with the time.
        parameters: parameters of the run; text is converted to the declared types.
        pipeline_root: where the artifacts go; None for the pipeline's or the server's default.
        experiment: name of the experiment, which is created if it does not exist.
        service_account: service account that the pods run as.
    """

    pipeline: str
    version: str | None = None
    name: str | None = None
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pipeline_root: str | None = None
    experiment: str = "Default"
    service_account: str | None = None


@dataclasses.dataclass(frozen=True)
class Created:
    """Something that was created on the server; the UI shows it at `link`."""

    id: str
    name: str
    link: str


@dataclasses.dataclass(frozen=True)
class RunState:
    """The state of a run.

    Attributes:
        state: e.g. `RUNNING`, `SUCCEEDED`, `FAILED`, `SKIPPED` or `CANCELED`.
        message: why, if the server says so.
        failed_tasks: names of the tasks that failed.
        link: where the UI shows it.
    """

    state: str
    message: str
    failed_tasks: tuple[str, ...]
    link: str

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.state in _FINISHED


class PipelineServer:
    """`kfp.Client` with checks before a call, retries, and errors of one line.

    Args:
        host: address, e.g. `https://example.org/pipeline`; None for `KF_PIPELINES_ENDPOINT`, the
            cluster that this runs in, or the kube config.
        attempts: how often a call is tried.
        **client_options: options of `kfp.Client`, e.g. `namespace`, `existing_token`, `cookies`,
            `credentials`, `ssl_ca_cert`.

    Raises:
        UserError: there is no address, nothing answers there, or the credentials are refused.

    Example:
        ```python
        server = PipelineServer("http://localhost:8080")
        server.upload("taxi.yaml")
        run = server.start(Job("taxi", parameters={"run-label": "monday"}))
        print(server.wait(run.id, timeout_seconds=3600).state)
        ```
    """

    def __init__(
        self, host: str | None = None, *, attempts: int = 4, **client_options: Any
    ) -> None:
        self._connection = Connection(host, attempts=attempts, client_options=client_options)
        self._client, self._call = self._connection.client, self._connection.call

    def pipeline_id(self, name: str) -> str | None:
        """Returns the id of a pipeline; None if the server has none of that name."""
        return self._call(self._client.get_pipeline_id, name)

    def upload(
        self, path: str | pathlib.Path, *, name: str | None = None, version: str | None = None
    ) -> Created:
        """Creates a pipeline, or another version of an existing one.

        Args:
            path: path of the file from `compile_pipeline`; checked before anything is sent.
            name: name of the pipeline; None for the one in the file.
            version: name of the version, by default with the time; the first version of a new
                pipeline has the pipeline's name.

        Raises:
            UserError: the file, the upload or the name is refused; nothing was created.
        """
        spec = lint.read(path)
        name = name or spec["pipelineInfo"]["name"]
        pipeline_id = self.pipeline_id(name)
        if pipeline_id is None:
            made = self._call(self._client.upload_pipeline, str(path), pipeline_name=name)
            page = f"pipelines/details/{made.pipeline_id}"
            return Created(made.pipeline_id, name, self._link(page))
        version = version or _with_time(name)
        made = self._call(
            self._client.upload_pipeline_version,
            str(path),
            pipeline_version_name=version,
            pipeline_id=pipeline_id,
        )
        page = f"pipelines/details/{pipeline_id}/version/{made.pipeline_version_id}"
        return Created(made.pipeline_version_id, version, self._link(page))

    def start(self, job: Job) -> Created:
        """Starts a run; raises a `UserError` if pipeline, version or a parameter is wrong."""
        arguments, name = self._arguments(job)
        made = self._call(self._client.run_pipeline, **arguments)
        return Created(made.run_id, name, self._run_link(made.run_id))

    def schedule(
        self, job: Job, *, cron: str | None = None, interval_seconds: int | None = None
    ) -> Created:
        """Starts runs on a schedule; one at a time, without catching up on missed ones.

        Args:
            job: what to run.
            cron: six fields, seconds first, e.g. `0 0 3 * * *` for three o'clock.
            interval_seconds: instead of `cron`; exactly one of them is given.
        """
        if bool(cron) == bool(interval_seconds):
            raise errors.UserError(
                "Expected exactly one of cron and interval_seconds. "
                f"Received: cron={cron}, interval_seconds={interval_seconds}."
            )
        if cron and len(cron.split()) != _CRON_FIELDS:
            raise errors.UserError(
                "Expected a cron expression of six fields, seconds first, e.g. '0 0 3 * * *'. "
                f"Received: cron={cron}."
            )
        arguments, name = self._arguments(job)
        made = self._call(
            self._client.create_recurring_run,
            cron_expression=cron,
            interval_second=interval_seconds,
            no_catchup=True,
            **arguments,
        )
        page = f"recurringrun/details/{made.recurring_run_id}"
        return Created(made.recurring_run_id, name, self._link(page))

    def state(self, run_id: str) -> RunState:
        """Returns the state of a run; raises a `UserError` if there is no such run."""
        run = self._call(self._client.get_run, run_id)
        tasks = (run.run_details and run.run_details.task_details) or []
        return RunState(
            state=run.state or "PENDING",
            message=" ".join(run.error.message.split()) if run.error else "",
            failed_tasks=tuple(task.display_name for task in tasks if task.state == "FAILED"),
            link=self._run_link(run_id),
        )

    def wait(self, run_id: str, *, timeout_seconds: float, poll_seconds: float = 10.0) -> RunState:
        """Returns the state of a run when it has finished or, if it still runs, after the time."""
        deadline = time.monotonic() + timeout_seconds
        while not (state := self.state(run_id)).finished:
            if time.monotonic() + poll_seconds > deadline:
                break
            time.sleep(poll_seconds)
        return state

    def _arguments(self, job: Job) -> tuple[dict[str, Any], str]:
        pipeline_id = self.pipeline_id(job.pipeline)
        if pipeline_id is None:
            raise errors.UserError(
                f"Expected a pipeline that the server has. Received: pipeline={job.pipeline}; "
                "upload it first."
            )
        version = self._version(job, pipeline_id)
        # The experiment is created last, if it does not exist, so that errors leave none behind.
        params = _typed(job.parameters, version.pipeline_spec)
        name = job.name or _with_time(job.pipeline)
        experiment = self._call(self._client.create_experiment, job.experiment)
        return {
            "experiment_id": experiment.experiment_id,
            "job_name": name,
            "params": params,
            "pipeline_id": pipeline_id,
            "version_id": version.pipeline_version_id,
            "pipeline_root": job.pipeline_root,
            "service_account": job.service_account,
        }, name

    def _version(self, job: Job, pipeline_id: str) -> Any:
        listed = self._call(
            self._client.list_pipeline_versions,
            pipeline_id,
            page_size=_PAGE_SIZE,
            sort_by="created_at desc",
        )
        versions = listed.pipeline_versions or []
        for version in versions:
            if job.version in (None, version.display_name):
                return version
        known = ", ".join(version.display_name for version in versions[:5]) or "none"
        raise errors.UserError(
            f"Expected a version of {job.pipeline}, newest first: {known}. "
            f"Received: version={job.version}."
        )

    def _run_link(self, run_id: str) -> str:
        return self._link(f"runs/details/{run_id}")

    def _link(self, page: str) -> str:
        return f"{self._connection.ui_address}/#/{page}"


def _with_time(name: str) -> str:
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"{name}-{now:%Y%m%d-%H%M%S-%f}"


def _typed(given: Mapping[str, Any], spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the run's parameters with the types that the pipeline declares; text is converted."""
    spec = spec or {}
    spec = spec.get("pipeline_spec", spec)  # the server may return the platform spec beside it
    definitions = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    for name in given:
        if name not in definitions:
            known = ", ".join(sorted(definitions)) or "there are none"
            raise errors.UserError(
                f"Expected parameters of the pipeline, {known}. Received: {name}={given[name]}."
            )
    for name, definition in definitions.items():
        if name not in given and "defaultValue" not in definition:
            raise errors.UserError(
                f"Expected a value for the parameter {name}, which has no default. Received: none."
            )
    return {name: _converted(name, value, definitions[name]) for name, value in given.items()}


def _converted(name: str, value: Any, definition: Mapping[str, Any]) -> Any:
    kind = str(definition.get("parameterType"))
    if lint.PARAMETER_TYPES.get(kind, str) is str:
        return str(value)
    converted = value
    if isinstance(value, str):
        try:
            converted = json.loads(value)
        except ValueError:
            converted = None
    if not lint.is_of_type(converted, kind):
        raise errors.UserError(f"Expected a {kind} for {name}. Received: {name}={value!r}.")
    return converted
