"""Differences between the two kinds of jobs when they are submitted, and their pods."""

import dataclasses
from typing import Any

from tfx_perf.config.distribution import TRAINING_CONTAINERS
from tfx_perf.core import workers

_ENDED = ("Succeeded", "Failed")
# Exit codes of a container that is ended from outside: by SIGKILL and SIGTERM.
_SIGNALLED = (137, 143)


@dataclasses.dataclass(frozen=True)
class JobKind:
    """A kind of custom resource.

    Attributes:
        plural: as in the API's paths.
        container: the name that the operator requires for the container that trains.
        task_label: label of the pods with the kind of their task; without it, all are workers.
        succeeded: type of the condition that reports success.
        operator: name of what must be installed.
    """

    name: str
    group: str
    version: str
    plural: str
    container: str
    job_label: str
    index_label: str
    task_label: str
    succeeded: str
    operator: str


KINDS = {
    "TFJob": JobKind(
        name="TFJob",
        group="kubeflow.org",
        version="v1",
        plural="tfjobs",
        container=TRAINING_CONTAINERS["TFJob"],
        job_label="training.kubeflow.org/job-name",
        index_label="training.kubeflow.org/replica-index",
        task_label="training.kubeflow.org/replica-type",
        succeeded="Succeeded",
        operator="Kubeflow's Training Operator v1",
    ),
    "TrainJob": JobKind(
        name="TrainJob",
        group="trainer.kubeflow.org",
        version="v1alpha1",
        plural="trainjobs",
        container=TRAINING_CONTAINERS["TrainJob"],
        job_label="jobset.sigs.k8s.io/jobset-name",
        index_label="batch.kubernetes.io/job-completion-index",
        task_label="",
        succeeded="Complete",
        operator="Kubeflow Trainer v2",
    ),
}


@dataclasses.dataclass(frozen=True)
class Pod:
    """The pod of a process that trains, or serves one that does.

    Attributes:
        task: the task of its process, e.g. `worker 0`.
        state: its phase, with the reason if its container waits or was ended by Kubernetes, e.g.
            `Pending (ImagePullBackOff)`.
        has_log: whether its container has been started.
        has_failed: whether it has ended with an error that its deletion did not cause.
        last_words: the end of its log, if that is known without reading it.
    """

    name: str
    uid: str
    task: str
    state: str
    has_log: bool
    has_ended: bool
    has_failed: bool
    last_words: str

    @classmethod
    def of(cls, item: Any, kind: JobKind) -> "Pod":
        """Returns the pod that a `V1Pod` describes."""
        phase, labels = item.status.phase or "Pending", item.metadata.labels or {}
        states = [each.state for each in item.status.container_statuses or () if each.state]
        ended = [state.terminated for state in states if state.terminated]
        reasons = [
            part.reason
            for state in states
            for part in (state.waiting, state.terminated)
            if part and part.reason
        ]
        # The reasons of a pod that no machine has room for.
        reasons += [
            each.reason
            for each in item.status.conditions or ()
            if each.type == "PodScheduled" and each.status == "False" and each.reason
        ]
        # The operator deletes the pods that still run when another one has failed.
        follows = item.metadata.deletion_timestamp is not None and any(
            each.exit_code in _SIGNALLED for each in ended
        )
        return cls(
            name=item.metadata.name,
            uid=item.metadata.uid,
            task=workers.name_of(
                labels.get(kind.task_label, "worker"), int(labels.get(kind.index_label, 0))
            ),
            state=f"{phase} ({', '.join(reasons)})" if reasons else phase,
            has_log=phase in ("Running", *_ENDED),
            has_ended=phase in _ENDED,
            has_failed=phase == "Failed" and not follows,
            last_words="\n".join(each.message for each in ended if each.message),
        )
