"""Containers as the place where the nodes run."""

from typing import Literal

from tfx_perf.settings.section import Section
from tfx_perf.settings.values import NotEmpty


class ContainerSettings(Section):
    """Runs each node in a container of its own instead of a process of the Airflow worker.

    The image holds TFX, tfx_perf and the pipeline's own code; the node's part of the
    pipeline comes with the task. Artifacts and ML Metadata must be reachable from the container.

    Attributes:
        operator: `kubernetes` for KubernetesPodOperator, `docker` for DockerOperator; its
            provider package must be installed beside Airflow. Arguments such as `namespace`,
            `container_resources`, `node_selector` or `mounts` go into
            `TaskSettings.operator_arguments`.
        image: name of the image.
    """

    operator: Literal["kubernetes", "docker"]
    image: NotEmpty
