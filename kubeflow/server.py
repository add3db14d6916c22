"""A Kubeflow Pipelines server, through `kfp.Client`: upload, run, schedule, wait."""

import contextlib
import dataclasses
import datetime
import io
import json
import logging
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import urllib3

from tfx_perf.core import errors
from tfx_perf.kubeflow import lint

ENDPOINT_VARIABLE = "KF_PIPELINES_ENDPOINT"

# The server has not started to process the request.
_NOT_BEGUN = (429, 503)
# The server may have processed the request, and only the answer was lost.
_UNKNOWN = (500, 502, 504)
_PAUSE_SECONDS = 1.0
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
        self._host = host or os.environ.get(ENDPOINT_VARIABLE)
        if not self._host and not _has_cluster():
            raise errors.UserError(
                "Expected the address of a Kubeflow Pipelines server. Received: no host, no "
                f"{ENDPOINT_VARIABLE}, no cluster around and no kube config."
            )
        if self._host and "://" not in self._host:
            self._host = f"https://{self._host}"
        # Its warnings about each retry are not helpful.
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            client_class = _client_class(attempts)
            self._client = self._call(client_class, host=self._host, **client_options)
        # The client itself checks only if it has no namespace.
        self._call(self._client.get_kfp_healthz)

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
        if cron and len(cron.split()) != 6:
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
        params = _convert_parameters(job.parameters, version.pipeline_spec)
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
            page_size=100,
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
        address = self._client._get_url_prefix().rstrip("/")  # as kfp prints it in its own links
        return f"{address}/#/{page}"

    def _call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Calls a function of the client; a `UserError` says why the server refuses it."""
        import kfp_server_api

        try:
            with contextlib.redirect_stdout(io.StringIO()):  # kfp prints links
                return function(*arguments, **keywords)
        except kfp_server_api.ApiException as error:
            raise errors.UserError(self._explained(error)) from error
        except urllib3.exceptions.HTTPError as error:
            reason = " ".join(str(getattr(error, "reason", error)).split())
            raise errors.UserError(
                "Expected a Kubeflow Pipelines server that answers. Received: "
                f"host={self._host or 'of the kube config'} ({reason})."
            ) from error

    def _explained(self, error: Any) -> str:
        message = errors.of_server(error)
        where = f"host={self._host or 'of the kube config'}"
        if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return (
                f"Expected credentials that the server accepts. Received: {where} answers "
                f"{error.status} ({message}). Give a token or cookies, as for kfp.Client."
            )
        if error.status == HTTPStatus.CONFLICT:
            return f"Expected a name that is not taken. Received: {message}."
        if error.status == HTTPStatus.NOT_FOUND:
            return f"Expected something that the server has. Received: {where}: {message}."
        return f"Expected the server to accept this. Received: {error.status} {message}."


def _with_time(name: str) -> str:
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"{name}-{now:%Y%m%d-%H%M%S-%f}"


def _convert_parameters(given: Mapping[str, Any], spec: Mapping[str, Any] | None) -> dict[str, Any]:
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
        may_lack = "defaultValue" in definition or definition.get("isOptional")
        if name not in given and not may_lack:
            raise errors.UserError(
                f"Expected a value for the parameter {name}, which has no default. Received: none."
            )
    return {name: _convert(name, value, definitions[name]) for name, value in given.items()}


def _convert(name: str, value: Any, definition: Mapping[str, Any]) -> Any:
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


class _Retry(urllib3.Retry):
    """Retries requests that change nothing; those that change something only if not begun."""

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        return status_code in _NOT_BEGUN or (method == "GET" and status_code in _UNKNOWN)


def _client_class(attempts: int) -> Any:
    """Returns `kfp.Client`, changed so that a request is retried if that does no harm."""
    try:
        import kfp
    except ImportError as error:
        raise errors.UserError(
            "Expected kfp to be installed. Received: no module kfp. "
            "Install it with pip install 'tfx-perf[kfp]'."
        ) from error
    retries = _Retry(
        attempts - 1, allowed_methods={"GET"}, backoff_factor=_PAUSE_SECONDS,
        raise_on_status=False, respect_retry_after_header=False,  # it may be an hour
    )  # fmt: skip

    class Client(kfp.Client):
        """Asks for the server's health once; the retries are ours."""

        def _load_config(self, *arguments: Any, **keywords: Any) -> Any:
            config = super()._load_config(*arguments, **keywords)
            config.retries = retries
            return config

        def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:
            return self._healthz_api.healthz_service_get_healthz()

    return Client


def _has_cluster() -> bool:
    kube_config = os.environ.get("KUBECONFIG") or pathlib.Path("~/.kube/config").expanduser()
    return "KUBERNETES_SERVICE_HOST" in os.environ or pathlib.Path(kube_config).exists()
