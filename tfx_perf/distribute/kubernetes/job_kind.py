"""Differences between the two kinds of jobs for whoever submits them."""

import dataclasses

from tfx_perf.config.distribution import TRAINING_CONTAINERS


@dataclasses.dataclass(frozen=True)
class JobKind:
    """A kind of custom resource.

    Attributes:
        plural: as in the API's paths.
        container: the name that the operator demands of the container that trains.
        task_label: label of the pods with the kind of their task; without it, all are workers.
        succeeded: type of the condition that says so.
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


_KINDS = (
    JobKind(
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
    JobKind(
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
)

KINDS = {kind.name: kind for kind in _KINDS}
