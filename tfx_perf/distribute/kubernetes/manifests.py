"""The manifest of a job, as Kubernetes receives it."""

import math
import re
from typing import Any

from tfx_perf.config.distribution import ClusterJob, DistributionSettings
from tfx_perf.distribute.kubernetes.job_kind import KINDS
from tfx_perf.distribute.parameter_server import heartbeat
from tfx_perf.distribute.worker import HOSTS_VARIABLE

DIGEST_LABEL = "tfx-perf/training"
# As in kubeflow/Dockerfile.
_USER = 1000
_PORT = 2222
# How long an ended job is kept; a killed pod of OptimizedTrainer is retried sooner.
_KEPT_SECONDS = 3600
# Added to the timeout: OptimizedTrainer, which explains more, ends the job before the operator.
_MARGIN_SECONDS = 60
_HEARTBEAT_FILE = "/tmp/tfx-perf-heartbeat"  # noqa: S108 (of a container)
_PROBE_SECONDS = 10  # between two probes, and for one on a busy machine
# Operators add `-worker-999`, or `-node-0-999` and six more, which must fit into 63 characters.
_NAME_LENGTH = 44


def manifest(
    settings: DistributionSettings, *, name: str, digest: str, command: list[str]
) -> dict[str, Any]:
    """Returns the custom resource, with a DNS label as name and a digest of the training.

    An operator that can restart workers by itself does so, unless `restarts` is 0.
    Kubernetes kills processes that only serve if they give no heartbeat.
    """
    job = settings.job
    assert job is not None  # otherwise not called
    kind = KINDS[job.kind]
    if job.kind == "TFJob":
        spec = _tf_job_spec(settings, job, digest=digest, command=command)
    else:
        spec = _train_job_spec(job, name=name, command=command)
    return {
        "apiVersion": f"{kind.group}/{kind.version}",
        "kind": kind.name,
        "metadata": {"name": name, "labels": _labels(digest)},
        "spec": spec,
    }


def _tf_job_spec(
    settings: DistributionSettings, job: ClusterJob, *, digest: str, command: list[str]
) -> dict[str, Any]:
    def replicas(count: int, restart_policy: str, *, only_serves: bool = False) -> dict[str, Any]:
        timeout_seconds = math.ceil(settings.heartbeat_timeout_seconds)
        replica = {
            "metadata": {
                "labels": _labels(digest),
                "annotations": {"sidecar.istio.io/inject": "false"},  # the sidecar would never end
            },
            "spec": _pod(job, command, _watched(timeout_seconds) if only_serves else {}),
        }
        return {
            "replicas": count,
            "restartPolicy": restart_policy,
            "template": _merged(replica, job.pod_template),
        }

    server_count = job.parameter_server_count
    if server_count is None:
        # Otherwise the others are killed when the first one ends. No worker can restart alone.
        policy = {"successPolicy": "AllWorkers"}
        specs = {"Worker": replicas(job.worker_count, "Never")}
    else:  # the job ends as the coordinator does, and the others are killed
        policy = {}
        specs = {
            "Chief": replicas(1, "Never"),
            # Restarted after a signal; the operator does not count how often.
            "Worker": replicas(
                job.worker_count, "ExitCode" if settings.restarts else "Never", only_serves=True
            ),
            "PS": replicas(server_count, "Never", only_serves=True),
        }
    return {
        "runPolicy": {
            # Ended pods stay until their logs have been read. No backoffLimit: with 0, Training
            # Operator 1.9 deletes all pods when one fails, and any other number does nothing.
            "cleanPodPolicy": "Running",
            "activeDeadlineSeconds": _deadline_seconds(job),
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
        },
        **policy,
        "tfReplicaSpecs": specs,
    }


def _train_job_spec(job: ClusterJob, *, name: str, command: list[str]) -> dict[str, Any]:
    kind, container = KINDS[job.kind], job.container
    # The names that JobSet gives the pods of the runtime's job `node`.
    hosts = [f"{name}-node-0-{index}.{name}:{_PORT}" for index in range(job.worker_count)]
    hosts_variable = {"name": HOSTS_VARIABLE, "value": ",".join(hosts)}
    trainer = {
        "numNodes": job.worker_count,
        "command": command,
        "env": [hosts_variable, *(container.get("env") or ())],
        "resourcesPerNode": container.get("resources", {}),
    }
    if job.image:
        trainer["image"] = job.image
    return {
        "runtimeRef": {"apiGroup": kind.group, "kind": "TrainingRuntime", "name": job.runtime},
        "trainer": trainer,
        # From Kubeflow Trainer 2.2 on; older versions drop it.
        "activeDeadlineSeconds": _deadline_seconds(job),
    }


def _deadline_seconds(job: ClusterJob) -> int:
    return job.timeout_seconds + _MARGIN_SECONDS


def _pod(job: ClusterJob, command: list[str], watched: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "containers": [
            {
                "name": KINDS[job.kind].container,
                "image": job.image,
                # All workers run one image, however often they restart.
                "imagePullPolicy": "IfNotPresent",
                "command": command,
                "ports": [{"name": "tfjob-port", "containerPort": _PORT}],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                **watched,
            }
        ],
        # The operator looks at its own deadline only when a pod changes.
        "activeDeadlineSeconds": _deadline_seconds(job),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
        },
    }
    given: Any = job.pod_template.get("spec", {})
    if "serviceAccountName" not in given:
        pod["automountServiceAccountToken"] = False
    return pod


def _watched(timeout_seconds: int) -> dict[str, Any]:
    """Returns the probe by which Kubernetes kills a container whose heartbeats have stopped."""
    silence = f"$(( $(date +%s) - $(stat -c %Y {_HEARTBEAT_FILE}) ))"
    is_alive = f"test ! -e {_HEARTBEAT_FILE} || test {silence} -le {timeout_seconds}"
    return {
        "env": [{"name": heartbeat.VARIABLE, "value": _HEARTBEAT_FILE}],
        "livenessProbe": {
            "exec": {"command": ["sh", "-c", is_alive]},
            "periodSeconds": _PROBE_SECONDS,
            "timeoutSeconds": _PROBE_SECONDS,
        },
    }


def _merged(ours: Any, given: Any) -> Any:
    """Returns `ours`, overridden by the user's values; lists are merged by names."""
    if isinstance(ours, dict) and isinstance(given, dict):
        both = {key: _merged(ours[key], given[key]) for key in ours.keys() & given.keys()}
        return {**ours, **given, **both}
    is_of_lists = isinstance(ours, list) and isinstance(given, list)
    if is_of_lists and all(isinstance(each, dict) and "name" in each for each in (*ours, *given)):
        by_name = {each["name"]: each for each in ours}
        for each in given:
            by_name[each["name"]] = _merged(by_name.get(each["name"], {}), each)
        return [*by_name.values()]
    return given


def _labels(digest: str) -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "tfx-perf", DIGEST_LABEL: digest}


def job_name(*words: str, digest: str) -> str:
    """Returns a DNS label (RFC 1035) of the words, as far as they fit, ending with the digest."""
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    if not text[:1].isalpha():
        text = f"training-{text}"
    return f"{text[: _NAME_LENGTH - len(digest) - 1].strip('-')}-{digest}"
