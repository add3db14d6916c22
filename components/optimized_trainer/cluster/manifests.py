"""The job as Kubernetes gets it."""

import math
from collections.abc import Sequence
from typing import Any

from tfx_perf import heartbeat
from tfx_perf.components.optimized_trainer.cluster import tf_config
from tfx_perf.components.optimized_trainer.cluster.job_kind import KINDS
from tfx_perf.settings.distribution import ClusterJob

DIGEST_LABEL = "tfx-perf/training"

# As in kubeflow/Dockerfile.
_USER = 1000
_PORT = 2222
# If OptimizedTrainer's pod is killed, it is tried again before that.
_KEPT_SECONDS = 3600
# OptimizedTrainer, if it is there, deletes the job before the operator ends it, and says more.
_MARGIN_SECONDS = 60
_HEARTBEAT_FILE = "/tmp/tfx-perf-heartbeat"  # noqa: S108 (of a container)
_PROBE_SECONDS = 10  # between two, and for one on a busy machine


def manifest(
    settings: ClusterJob,
    *,
    name: str,
    digest: str,
    command: Sequence[str],
    restarts: int,
    heartbeat_timeout_seconds: float,
) -> dict[str, Any]:
    """Returns the custom resource.

    Args:
        settings: which kind, and how its workers run.
        name: of the job; a DNS label.
        digest: of what is trained, to tell the job of another training with this name.
        command: what each process runs.
        restarts: whether the operator itself starts workers again, where it can: 0 for never.
        heartbeat_timeout_seconds: after which Kubernetes kills those that only serve.
    """
    kind, own = KINDS[settings.kind], list(command)
    if settings.kind == "TFJob":
        spec = _tf_job_spec(
            settings,
            digest=digest,
            command=own,
            restarts=restarts,
            heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        )
    else:
        spec = _train_job_spec(settings, name=name, command=own)
    return {
        "apiVersion": f"{kind.group}/{kind.version}",
        "kind": kind.name,
        "metadata": {"name": name, "labels": _labels(digest)},
        "spec": spec,
    }


def _tf_job_spec(
    settings: ClusterJob,
    *,
    digest: str,
    command: list[str],
    restarts: int,
    heartbeat_timeout_seconds: float,
) -> dict[str, Any]:
    def replicas(
        count: int, restart_policy: str, *, only_serves: bool = False
    ) -> dict[str, Any]:
        pod = _pod(settings, command)
        if only_serves:
            _watch(pod, math.ceil(heartbeat_timeout_seconds))
        return {
            "replicas": count,
            "restartPolicy": restart_policy,
            "template": {
                "metadata": {
                    "labels": _labels(digest),
                    "annotations": {"sidecar.istio.io/inject": "false"},  # it would never end
                },
                "spec": pod,
            },
        }

    servers = settings.servers
    if servers is None:
        # Else the others are killed when the first one ends. Alone, a worker cannot begin anew.
        policy = {"successPolicy": "AllWorkers"}
        specs = {"Worker": replicas(settings.worker_count, "Never")}
    else:  # the job ends as the coordinator does, and the others are killed
        policy = {}
        specs = {
            "Chief": replicas(1, "Never"),
            # Again after a signal; how often, the operator does not count.
            "Worker": replicas(
                settings.worker_count, "ExitCode" if restarts else "Never", only_serves=True
            ),
            "PS": replicas(servers.server_count, "Never", only_serves=True),
        }
    return {
        "runPolicy": {
            # What has ended stays until its log has been read. No backoffLimit: with 0, Training
            # Operator 1.9 deletes all pods when one fails, and any other number does nothing.
            "cleanPodPolicy": "Running",
            "activeDeadlineSeconds": _deadline_seconds(settings),
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
        },
        **policy,
        "tfReplicaSpecs": specs,
    }


def _train_job_spec(settings: ClusterJob, *, name: str, command: list[str]) -> dict[str, Any]:
    kind = KINDS[settings.kind]
    # The names that JobSet gives the pods of the runtime's job `node`.
    hosts = [f"{name}-node-0-{index}.{name}:{_PORT}" for index in range(settings.worker_count)]
    trainer = {
        "numNodes": settings.worker_count,
        "command": command,
        "env": [{"name": tf_config.HOSTS_VARIABLE, "value": ",".join(hosts)}, *_env(settings)],
        "resourcesPerNode": _resources(settings),
    }
    if settings.image:
        trainer["image"] = settings.image
    return {
        "runtimeRef": {
            "apiGroup": kind.group,
            "kind": "TrainingRuntime",
            "name": settings.runtime,
        },
        "trainer": trainer,
        # From Kubeflow Trainer 2.2 on; an older one drops it.
        "activeDeadlineSeconds": _deadline_seconds(settings),
    }


def _deadline_seconds(settings: ClusterJob) -> int:
    return settings.timeout_seconds + _MARGIN_SECONDS


def _pod(settings: ClusterJob, command: list[str]) -> dict[str, Any]:
    names = dict.fromkeys(settings.volumes.values())  # each once, though it may be mounted twice
    claims = {claim: f"volume-{number}" for number, claim in enumerate(names)}
    container = {
        "name": KINDS[settings.kind].container,
        "image": settings.image,
        # All workers run one image, however often they begin again.
        "imagePullPolicy": settings.image_pull_policy or "IfNotPresent",
        "command": command,
        "env": _env(settings),
        "ports": [{"name": "tfjob-port", "containerPort": _PORT}],
        "resources": _resources(settings),
        "volumeMounts": [
            {"name": claims[claim], "mountPath": folder}
            for folder, claim in settings.volumes.items()
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod: dict[str, Any] = {
        "containers": [container],
        # The operator looks at its own deadline only when a pod changes.
        "activeDeadlineSeconds": _deadline_seconds(settings),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
        },
        "volumes": [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            for claim, volume in claims.items()
        ],
    }
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    else:
        pod["automountServiceAccountToken"] = False
    if settings.node_selector:
        pod["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        pod["tolerations"] = [each.fields for each in settings.tolerations]
    return pod


def _watch(pod: dict[str, Any], timeout_seconds: int) -> None:
    """Has Kubernetes kill a container whose process has given heartbeats, and gives none."""
    (container,) = pod["containers"]
    container["env"].append({"name": heartbeat.VARIABLE, "value": _HEARTBEAT_FILE})
    silence = f"$(( $(date +%s) - $(stat -c %Y {_HEARTBEAT_FILE}) ))"
    is_alive = f"test ! -e {_HEARTBEAT_FILE} || test {silence} -le {timeout_seconds}"
    container["livenessProbe"] = {
        "exec": {"command": ["sh", "-c", is_alive]},
        "periodSeconds": _PROBE_SECONDS,
        "timeoutSeconds": _PROBE_SECONDS,
    }


def _env(settings: ClusterJob) -> list[dict[str, Any]]:
    plain = [{"name": name, "value": value} for name, value in settings.environment.items()]
    secret = []
    for name, source in settings.secret_environment.items():
        holder, _, key = source.partition("/")
        reference = {"secretKeyRef": {"name": holder, "key": key}}
        secret.append({"name": name, "valueFrom": reference})
    return [*plain, *secret]


def _resources(settings: ClusterJob) -> dict[str, dict[str, str]]:
    requests = {"cpu": settings.cpu, "memory": settings.memory}
    limits: dict[str, str | None] = {"memory": settings.memory}
    if settings.accelerator:
        limits[settings.accelerator] = str(settings.accelerator_count)
    return {
        "requests": {key: value for key, value in requests.items() if value},
        "limits": {key: value for key, value in limits.items() if value},
    }


def _labels(digest: str) -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "tfx-perf", DIGEST_LABEL: digest}
