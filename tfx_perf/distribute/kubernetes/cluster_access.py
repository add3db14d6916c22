"""The way to the cluster: from a pod by its service account, else by the kube config."""

import dataclasses
import os
import pathlib
import socket
from typing import Any

from tfx_perf.core import errors

_NAMESPACE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE = "default"
_POD_NAME = "KFP_POD_NAME"  # Kubeflow Pipelines says it; elsewhere it is the host's name


@dataclasses.dataclass(frozen=True)
class Access:
    """A client of `kubernetes`, the namespace, and this process's pod; None outside the cluster."""

    client: Any
    namespace: str
    pod: str | None


def connected() -> Access:
    """Returns the way to the cluster, or raises a `UserError` without the library or a cluster."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise errors.UserError(
            "Expected kubernetes to be installed, for distribution.job. Received: no module "
            "kubernetes. Install it with pip install 'tfx-perf[kfp]'."
        ) from error
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = _NAMESPACE.read_text(encoding="utf-8").strip()
        pod = os.environ.get(_POD_NAME) or socket.gethostname()
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
        namespace = active["context"].get("namespace", _DEFAULT_NAMESPACE)
        pod = None
    configuration.retries = False  # JobApi's are the only ones
    return Access(client.ApiClient(configuration), namespace=namespace, pod=pod)
