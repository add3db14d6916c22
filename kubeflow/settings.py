"""Settings that Kubeflow needs and the pipeline does not have, for all nodes or for one."""

import decimal
import re
from typing import Annotated, Any, Literal

import pydantic

from tfx_perf.config.base import Count, NotEmpty, PathText, Section, Settings, Several

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")


def _checked_quantity(text: Any) -> str:
    text = str(text)  # YAML reads 2 as a number
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError('a Kubernetes quantity, e.g. "500m", "2" or "8Gi"')
    if not decimal.Decimal(match[1]):
        raise ValueError("a quantity above 0")
    return text


def _checked_sources(variables: dict[str, str]) -> dict[str, str]:
    for source in variables.values():
        secret, _, key = source.partition("/")
        if not (secret and key):
            raise ValueError("secret/key for each variable")
    return variables


def _checked_mounts(mounts: dict[str, str]) -> dict[str, str]:
    for folder in mounts:
        if not folder.startswith("/"):
            raise ValueError(f"absolute folders to mount at, not {folder!r}")
    return mounts


# Cores or bytes in Kubernetes' notation, above 0.
Quantity = Annotated[str, pydantic.BeforeValidator(_checked_quantity)]
# Variable to `secret/key`.
SecretVariables = Annotated[dict[str, str], pydantic.AfterValidator(_checked_sources)]
# Absolute folder to the name of what is mounted there.
Mounts = Annotated[dict[PathText, str], pydantic.AfterValidator(_checked_mounts)]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]


class Toleration(Section):
    """A taint that a pod tolerates, in Kubernetes' own fields.

    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration

    Attributes:
        key: key of the taint; None, with `Exists`: every taint.
        operator: `Equal` compares the taint's value, `Exists` does not; None: `Equal`.
        value: value of the taint.
        effect: effect of the taint; None: every effect.
        tolerationSeconds: how long the pod stays on a machine that gets the taint `NoExecute`;
            None: as long as it runs.
    """

    key: NotEmpty | None = None
    operator: Literal["Equal", "Exists"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: int | None = None  # noqa: N815 (Kubernetes' name)

    # Kubernetes requires this, too, but checks it only when it creates the pod.
    @pydantic.model_validator(mode="after")
    def _is_coherent(self) -> "Toleration":
        if self.key is None and self.operator != "Exists":
            raise ValueError("the operator Exists where a toleration has no key")
        if self.operator == "Exists" and self.value:
            raise ValueError("no value with the operator Exists")
        if self.tolerationSeconds is not None and self.effect != "NoExecute":
            raise ValueError("tolerationSeconds with the effect NoExecute")
        return self


# Kubernetes refuses other values, but only when it creates the pod.
_LabelValue = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$", max_length=63
    ),
]


class NodeSettings(Section):
    """Resources, placement, environment, secrets and labels of a node's container.

    Attributes:
        image: container image; None for the pipeline's.
        cpu_request: cores, e.g. `"500m"` or `2`.
        cpu_limit: cores.
        memory_request: bytes as Kubernetes writes them, e.g. `"8Gi"`.
        memory_limit: bytes.
        accelerator: resource name, e.g. `nvidia.com/gpu`.
        accelerator_count: how many.
        node_selector: labels that the machine must have.
        tolerations: taints that the pod tolerates.
        environment: variables.
        secret_environment: variable to `secret/key`.
        secret_volumes: folder to the secret that is mounted there.
        volumes: folder to the PersistentVolumeClaim that is mounted there.
        pod_labels: labels of the pod, by which e.g. a PodMonitor finds it.
        pod_annotations: annotations of the pod, e.g. `prometheus.io/scrape`.
        image_pull_policy: None for the cluster's.
        image_pull_secrets: secrets for the image's registry.
        retries: how often a failed container is started again.
        cache: False always runs the node; None as the pipeline says.
    """

    image: str | None = None
    cpu_request: Quantity | None = None
    cpu_limit: Quantity | None = None
    memory_request: Quantity | None = None
    memory_limit: Quantity | None = None
    accelerator: str | None = None
    accelerator_count: Count | None = None
    node_selector: dict[str, str] = pydantic.Field(default_factory=dict)
    tolerations: Several[Toleration] = ()
    environment: dict[str, str] = pydantic.Field(default_factory=dict)
    secret_environment: SecretVariables = pydantic.Field(default_factory=dict)
    secret_volumes: Mounts = pydantic.Field(default_factory=dict)
    volumes: Mounts = pydantic.Field(default_factory=dict)
    pod_labels: dict[str, _LabelValue] = pydantic.Field(default_factory=dict)
    pod_annotations: dict[str, str] = pydantic.Field(default_factory=dict)
    image_pull_policy: PullPolicy | None = None
    image_pull_secrets: Several[str] = ()
    retries: Count | None = None
    cache: bool | None = None

    @pydantic.model_validator(mode="after")
    def _counted(self) -> "NodeSettings":
        if bool(self.accelerator) != bool(self.accelerator_count):
            raise ValueError("accelerator and accelerator_count together")
        return self

    def overridden_by(self, other: "NodeSettings") -> "NodeSettings":
        """Returns these settings, overridden by those of `other`; mappings are merged."""
        merged: dict[str, Any] = {name: getattr(self, name) for name in self.model_fields_set}
        for name in other.model_fields_set:
            value = getattr(other, name)
            merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
        return NodeSettings(**merged)


class KubeflowSettings(Settings):
    """Image, place of the artifacts, and how each node's container runs.

    Attributes:
        image: container image with tfx-perf and your code installed (see `kubeflow/Dockerfile`).
        pipeline_root: where the artifacts go, e.g. `minio://mlpipeline/v2/artifacts`; None for the
            server's default. A run can be given another one.
        defaults: settings of every node.
        nodes: settings by the id of the node in the pipeline; they override `defaults`.

    Example:
        ```yaml
        image: example/taxi:1
        defaults: {cpu_limit: 2, memory_limit: 4Gi}
        nodes:
          OptimizedTrainer:
            accelerator: nvidia.com/gpu
            accelerator_count: 1
            node_selector: {pool: gpu}
            retries: 2
        ```
    """

    image: NotEmpty
    pipeline_root: PathText | None = None
    defaults: NodeSettings = NodeSettings()
    nodes: dict[str, NodeSettings] = pydantic.Field(default_factory=dict)

    def for_node(self, node_id: str) -> NodeSettings:
        """Returns the settings of one node."""
        node = self.nodes.get(node_id, NodeSettings())
        return NodeSettings(image=self.image).overridden_by(self.defaults).overridden_by(node)
