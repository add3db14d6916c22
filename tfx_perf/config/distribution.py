"""Settings of a training over several replicas or workers."""

import pathlib
from collections.abc import Mapping
from typing import Any, Literal

import pydantic

from tfx_perf.config.base import Count, NotEmpty, PathText, Positive, PositiveInt, Section
from tfx_perf.core.validation import SettingError
from tfx_perf.core.workers import ParameterServers

_FEWEST_ALIKE = 2  # workers that train together

TRAINING_CONTAINERS = {"TFJob": "tensorflow", "TrainJob": "node"}
"""The name that the operator of a kind of job demands of the container that trains."""

# Fields that a TrainJob has in every version; its runtime has the rest.
_OF_A_TRAIN_JOB = {"name", "env", "resources"}

# Settings that cannot be combined with a job, which has its own instead.
_ON_THIS_MACHINE = ("workers", "parameter_servers")

ReductionDtype = Literal["bfloat16", "float16"]


class ClusterJob(Section):
    """A job of Kubeflow's training operator, one container for each worker.

    Attributes:
        kind: `TFJob` (Training Operator v1) or `TrainJob` (Kubeflow Trainer v2).
        worker_count: number of workers, the chief included; at least 2 without parameter servers.
        parameter_server_count: number of parameter servers of a TFJob; None: none.
        shared_folder: absolute folder that OptimizedTrainer and all workers see, on a ReadWriteMany
            volume.
        image: image with tfx-perf and your code; required for a TFJob. None, for a TrainJob: the
            runtime's.
        runtime: name of the TrainingRuntime; required for a TrainJob.
        pod_template: a Kubernetes `PodTemplateSpec`, merged into that of each pod by the names of
            containers and variables. The training container is `tensorflow` in a TFJob and `node`
            in a TrainJob.
        timeout_seconds: after this, the job is deleted and the training has failed.
    """

    kind: Literal["TFJob", "TrainJob"] = "TFJob"
    worker_count: PositiveInt
    parameter_server_count: PositiveInt | None = None
    shared_folder: PathText
    image: NotEmpty | None = None
    runtime: str | None = None
    pod_template: dict[str, pydantic.JsonValue] = pydantic.Field(default_factory=dict)
    timeout_seconds: PositiveInt = 86_400

    @property
    def container(self) -> dict[str, Any]:
        """The template's entry for the container that trains."""
        spec: Any = self.pod_template.get("spec", {})
        name = TRAINING_CONTAINERS[self.kind]
        return next((each for each in spec.get("containers", ()) if each["name"] == name), {})

    @pydantic.field_validator("shared_folder")
    @classmethod
    def _absolute(cls, folder: str) -> str:
        if not folder.startswith("/"):
            raise ValueError("an absolute folder on a volume that all workers mount")
        return folder

    @pydantic.field_validator("pod_template")
    @classmethod
    def _is_template(cls, template: dict[str, Any]) -> dict[str, Any]:
        spec = template.get("spec", {})
        containers = spec.get("containers", []) if isinstance(spec, dict) else None
        if template.keys() - {"metadata", "spec"} or not isinstance(containers, list):
            raise ValueError("metadata and spec, as in a PodTemplateSpec of Kubernetes")
        if not all(isinstance(each, dict) and each.get("name") for each in containers):
            raise ValueError("a name for each container")
        lists = (each.get(key) or [] for each in containers for key in ("env", "volumeMounts"))
        if not all(
            isinstance(items, list) and all(isinstance(item, dict) for item in items)
            for items in lists
        ):
            raise ValueError("lists of keys with values in env and volumeMounts, as Kubernetes has")
        return template

    @pydantic.model_validator(mode="after")
    def _complete(self) -> "ClusterJob":
        _check_workers(self.worker_count, self.parameter_server_count)
        if self.kind == "TFJob":
            self._check_tf_job()
        else:
            self._check_train_job()
        return self

    def _check_tf_job(self) -> None:
        if self.runtime is not None:
            raise ValueError("no runtime, which is for a TrainJob")
        if self.image is None:
            raise ValueError("an image for a TFJob")
        shared = pathlib.PurePosixPath(self.shared_folder)
        mounts = self.container.get("volumeMounts") or ()
        if not any(shared.is_relative_to(str(each.get("mountPath"))) for each in mounts):
            raise ValueError(
                "shared_folder in one of the volumeMounts of the container tensorflow in "
                "pod_template.spec.containers"
            )

    def _check_train_job(self) -> None:
        if self.parameter_server_count is not None:
            raise ValueError("no parameter_server_count for a TrainJob, which has no such role")
        if self.runtime is None:
            raise ValueError("for a TrainJob the name of a TrainingRuntime, in runtime")
        only_container = {"spec": {"containers": [self.container]}}
        if self.pod_template not in ({}, only_container) or self.container.keys() - _OF_A_TRAIN_JOB:
            raise ValueError(
                "env and resources of the container node alone in the pod_template of a TrainJob, "
                "whose TrainingRuntime says the rest"
            )


Strategy = Literal[
    "one_device", "mirrored", "model_parallel", "multi_worker", "parameter_server", "tpu", "auto"
]


class DistributionSettings(Section):
    """Devices, replicas and workers that OptimizedTrainer trains on.

    Attributes:
        strategy: strategy for code that makes none. `auto`: one device, or all of this machine if
            that is faster. None: the code's own, and `multi_worker` with several workers.
        device_memory_bytes: memory that `model_parallel` may use on each device; None: all that
            TensorFlow may take.
        reduction_dtype: type in which gradients are summed over replicas, `bfloat16` or `float16`;
            None: their own. It sends fewer bytes and changes numbers.
        sharding_invariant_random: dropout and other noise follow from a row's place in the batch,
            so any number of replicas draws the same.
        collective_timeout_seconds: a sum over workers that takes longer fails; None: none fails.
        workers: number of processes that train on this machine; at least 2, or 1 beside parameter
            servers. None: OptimizedTrainer trains itself.
        parameter_servers: number of processes that hold the weights, tf_keras only; None: the
            workers hold them.
        restarts: how often all workers restart after one was lost; with parameter servers, how
            often lost workers restart.
        start_timeout_seconds: how long workers wait for one another at the start.
        heartbeat_timeout_seconds: parameter servers and their workers are killed if they hang for
            so long.
        job: job on Kubernetes that trains in OptimizedTrainer's place; None: no job.
    """

    strategy: Strategy | None = None
    device_memory_bytes: PositiveInt | None = None
    reduction_dtype: ReductionDtype | None = None
    sharding_invariant_random: bool = False
    collective_timeout_seconds: Positive | None = None
    workers: PositiveInt | None = None
    parameter_servers: PositiveInt | None = None
    restarts: Count = 3
    start_timeout_seconds: Positive = 1800.0
    heartbeat_timeout_seconds: Positive = 60.0
    job: ClusterJob | None = None

    @pydantic.field_validator("reduction_dtype", mode="before")
    @classmethod
    def _is_narrower(cls, dtype: Any) -> Any:
        if dtype == "float32":
            raise SettingError(
                "bfloat16 or float16",
                remedy="Leave distribution.reduction_dtype out: gradients are then summed in "
                "their own type, usually float32.",
            )
        return dtype

    @pydantic.model_validator(mode="before")
    @classmethod
    def _one_place(cls, values: Any) -> Any:
        # Before each setting is validated: errors in one that has to be removed do not matter.
        if isinstance(values, Mapping) and values.get("job") is not None:
            here = [name for name in _ON_THIS_MACHINE if values.get(name) is not None]
            if here:
                raise SettingError(
                    f"a job, or {' and '.join(here)} on this machine, not both",
                    remedy=f"Leave distribution.job or {', '.join(here)} out.",
                )
        return values

    @pydantic.model_validator(mode="after")
    def _complete(self) -> "DistributionSettings":
        if self.parameter_servers is not None and self.workers is None:
            raise SettingError(
                "parameter_servers beside a number of workers on this machine",
                remedy="Set distribution.workers to a number, or leave parameter_servers out.",
            )
        if self.workers is not None:
            _check_workers(self.workers, self.parameter_servers)
        self._check_strategy()
        return self

    def _check_strategy(self) -> None:
        wanted, given = self.effective_strategy, self.strategy
        if given == "parameter_server" and self.servers is None:
            raise SettingError(
                "parameter_servers with the strategy parameter_server",
                remedy="Set distribution.parameter_servers and distribution.workers, or those of "
                "a job.",
            )
        if given == "auto" and self.delegates_training:
            number = "workers" if self.job is None else "job"
            raise SettingError(
                "either strategy=auto, which chooses between one device and all of this "
                "machine's, or workers",
                "strategy",
                remedy="Remove distribution.strategy, and the workers train, or remove "
                f"distribution.{number}, and the faster option trains.",
            )
        if self.delegates_training and given not in (wanted, None):
            among = "beside parameter servers" if self.servers else "for several workers"
            raise SettingError(
                f"{wanted}, or no strategy at all, {among}",
                "strategy",
                remedy="Leave distribution.strategy out: the workers get the one that fits.",
            )
        if self.device_memory_bytes is not None and given != "model_parallel":
            raise SettingError(
                "device_memory_bytes only beside strategy=model_parallel",
                "device_memory_bytes",
                remedy="Leave device_memory_bytes out, or set that strategy.",
            )
        if self.collective_timeout_seconds is not None and wanted != "multi_worker":
            raise SettingError(
                "collective_timeout_seconds only beside workers or a job, and no parameter servers",
                "collective_timeout_seconds",
                remedy="Leave it out. A strategy that your code makes takes "
                "tf.distribute.experimental.CommunicationOptions.",
            )
        if given == "multi_worker" and not self.delegates_training:
            raise SettingError(
                "workers or a job with the strategy multi_worker",
                remedy="Set distribution.workers or distribution.job, or leave strategy out.",
            )

    @property
    def effective_strategy(self) -> str | None:
        """The strategy made for the user's code; None if there is none, or `auto` is undecided."""
        if self.servers is not None:
            return "parameter_server"
        if self.worker_count > 1:
            return "multi_worker"
        return None if self.strategy == "auto" else self.strategy

    @property
    def worker_count(self) -> int:
        """How many processes compute steps."""
        if self.job is not None:
            return self.job.worker_count
        return self.workers or 1

    @property
    def workers_here(self) -> int:
        """How many processes run the same training on this machine; 1 if there is only one."""
        return 1 if self.job or self.servers else self.worker_count

    @property
    def servers(self) -> ParameterServers | None:
        """The parameter servers and workers of the coordinator; None if all workers train."""
        count = self.job.parameter_server_count if self.job else self.parameter_servers
        return ParameterServers(self.worker_count, count) if count else None

    @property
    def delegates_training(self) -> bool:
        """Whether other processes train instead of OptimizedTrainer."""
        return self.workers is not None or self.job is not None


def _check_workers(worker_count: int, server_count: int | None) -> None:
    if worker_count < _FEWEST_ALIKE and server_count is None:
        raise SettingError(
            f"at least {_FEWEST_ALIKE} workers, or parameter servers beside one",
            remedy="Leave them out, and one process trains.",
        )
