"""The Kubernetes API that a job needs: retried where that helps, with errors in one line."""

import os
import pathlib
import socket
import time
from collections.abc import Callable
from typing import Any

from tfx_perf.core import errors
from tfx_perf.distribute.kubernetes.job_kind import JobKind, Pod

_ATTEMPTS = 10
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_CALL_SECONDS = 30.0
_REFUSED = (401, 403)
_NOT_FOUND = 404
_CONFLICT = 409
_PASSING = (429, 500, 502, 503, 504)
_EVENTS = 10  # at most, the latest
_NAMESPACE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE = "default"
_POD_NAME = "KFP_POD_NAME"  # set by Kubeflow Pipelines; elsewhere the host's name is used


class JobApi:
    """Creates, finds and deletes jobs of one kind in the namespace of this process.

    `pause` is called with the seconds between two attempts; an exception from it ends the call.
    """

    def __init__(self, kind: JobKind) -> None:
        """Finds the cluster; UserError without the library `kubernetes`, or without a cluster."""
        try:
            from kubernetes import client
        except ImportError as error:
            raise errors.UserError(
                "Expected kubernetes to be installed, for distribution.job. Received: no module "
                "kubernetes. Install it with pip install 'tfx-perf[kfp]'."
            ) from error
        from urllib3 import exceptions

        self.kind = kind
        configuration = client.Configuration()
        self._namespace, self._pod = _connected(configuration)
        configuration.retries = False  # `_call` alone retries
        self.pause: Callable[[float], None] = time.sleep
        api = client.ApiClient(configuration)
        self._jobs, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)
        # By default, some versions of the client send a kind of patch that jobs do not support.
        header = ("Content-Type", "application/merge-patch+json")
        self._patches = client.CustomObjectsApi(client.ApiClient(configuration, *header))
        self._api_error, self._http_error = client.ApiException, exceptions.HTTPError
        self._place: dict[str, Any] = {
            "group": kind.group,
            "version": kind.version,
            "namespace": self._namespace,
            "plural": kind.plural,
        }

    def get(self, name: str) -> dict[str, Any] | None:
        """Returns a job, None if there is none of this name."""
        return self._call(
            self._jobs.get_namespaced_custom_object, name=name, **self._place, missing=True
        )

    def create(self, manifest: dict[str, Any]) -> dict[str, Any] | None:
        """Creates a job and returns it; None if it exists, perhaps because an answer was lost."""
        create = self._jobs.create_namespaced_custom_object
        try:
            return self._call(create, body=manifest, **self._place)
        except errors.UserError as error:
            if getattr(error.__cause__, "status", None) == _CONFLICT:
                return None
            raise

    def owner(self) -> dict[str, str] | None:
        """Returns this process's pod as an owner, with whose end the cluster may end a job."""
        if self._pod is None:
            return None
        pod = self._call(
            self._core.read_namespaced_pod, name=self._pod, namespace=self._namespace, missing=True
        )
        if pod is None:  # e.g. on the host's network, where the host's name is not the pod's
            return None
        metadata = pod.metadata
        return {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid}

    def set_owners(self, name: str, owners: list[dict[str, Any]]) -> None:
        """Sets the owners of a job: Kubernetes deletes it when the last of them is gone."""
        self._call(
            self._patches.patch_namespaced_custom_object,
            name=name,
            body={"metadata": {"ownerReferences": owners}},
            **self._place,
        )

    def delete(self, name: str) -> None:
        """Deletes a job, if it exists, after its pods."""
        self._call(
            self._jobs.delete_namespaced_custom_object,
            name=name,
            propagation_policy="Foreground",
            **self._place,
            missing=True,
        )

    def pods(self, name: str, *, is_patient: bool = True) -> list[Pod]:
        """Returns a job's pods, those of a kind sorted by index; retries if `is_patient`."""
        listed = self._call(
            self._core.list_namespaced_pod,
            namespace=self._namespace,
            label_selector=f"{self.kind.job_label}={name}",
            attempts=_ATTEMPTS if is_patient else 1,
        )
        pods = [Pod.of(item, self.kind) for item in listed.items]
        return sorted(pods, key=lambda pod: (len(pod.task), pod.task))

    def events(self, name: str) -> list[str]:
        """Returns the reasons and messages of the cluster's last events about a job, in order."""
        listed = self._call(
            self._core.list_namespaced_event,
            namespace=self._namespace,
            field_selector=f"involvedObject.kind={self.kind.name},involvedObject.name={name}",
        )
        last = sorted(listed.items, key=lambda each: str(each.last_timestamp or each.event_time))
        return [f"{each.reason} {each.message}" for each in last][-_EVENTS:]

    def log(self, pod: Pod, *, line_count: int, is_patient: bool = True) -> str:
        """Returns the last lines of a worker's output; retries if `is_patient`."""
        return self._call(
            self._core.read_namespaced_pod_log,
            name=pod.name,
            namespace=self._namespace,
            container=self.kind.container,
            tail_lines=line_count,
            attempts=_ATTEMPTS if is_patient else 1,
        )

    def _call(
        self,
        function: Callable[..., Any],
        *,
        missing: bool = False,
        attempts: int = _ATTEMPTS,
        **keywords: Any,
    ) -> Any:
        """Calls a function that may be repeated; with `missing`, returns None for a 404.

        Raises MeasurementError if there is no answer, or only errors of the server.
        """
        reason = ""
        for attempt in range(attempts):
            if attempt:
                seconds = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
                self.pause(min(seconds, _LONGEST_PAUSE_SECONDS))
            try:
                return function(**keywords, _request_timeout=_CALL_SECONDS)
            except self._api_error as error:
                if missing and error.status == _NOT_FOUND:
                    return None
                if error.status not in _PASSING:
                    raise errors.UserError(self._explained(error)) from error
                reason = f"{error.status} {errors.of_server(error)}"
            except self._http_error as error:
                reason = " ".join(str(getattr(error, "reason", error)).split())
        raise errors.MeasurementError(
            f"Expected the Kubernetes API to answer. Received: {reason}, {attempts} times."
        )

    def _explained(self, error: Any) -> str:
        what = f"{self.kind.plural}.{self.kind.group}"
        message = errors.of_server(error)
        if error.status in _REFUSED:
            return (
                f"Expected the right to handle {what}, pods, their logs and events in "
                f"the namespace {self._namespace}. Received: {error.status} ({message}). "
                "See kubeflow/manifests/training/access.yaml."
            )
        if error.status == _NOT_FOUND:
            return (
                f"Expected a cluster that knows {what}, with {self.kind.operator}, and the "
                f"namespace {self._namespace}. Received: {error.status} ({message})."
            )
        return f"Expected the cluster to accept the job. Received: {error.status} ({message})."


def _connected(configuration: Any) -> tuple[str, str | None]:
    """Fills the client's configuration; returns the namespace, and this pod if it is in one."""
    from kubernetes import config

    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = _NAMESPACE.read_text(encoding="utf-8").strip()
        return namespace, os.environ.get(_POD_NAME) or socket.gethostname()
    except (config.ConfigException, OSError):
        path = os.environ.get("KUBECONFIG")  # as it is now, not when the library was imported
        try:
            config.load_kube_config(path, client_configuration=configuration)
            _, active = config.list_kube_config_contexts(path)
        except config.ConfigException as error:
            raise errors.UserError(
                "Expected a cluster for distribution.job. Received: no service account of a pod "
                f"and no kube config ({error}). Run it on the cluster, or set KUBECONFIG."
            ) from error
    return active["context"].get("namespace", _DEFAULT_NAMESPACE), None
