"""Everything that Kubeflow has to know and the pipeline does not say."""

from typing import Literal

import pydantic

from tfx_perf.kubeflow.node_settings import NodeSettings
from tfx_perf.settings.section import Settings
from tfx_perf.settings.values import NotEmpty, PathText


class KubeflowSettings(Settings):
    """Image, place of the artifacts, and how each node's container runs.

    Attributes:
        image: container image with tfx-perf and your code installed (see `kubeflow/Dockerfile`).
        target: `kubeflow` for open-source Kubeflow Pipelines 2.x, `vertex` for Vertex AI Pipelines.
        pipeline_root: where the artifacts go, e.g. `minio://mlpipeline/v2/artifacts`; None for the
            server's default. A run can be given another one.
        defaults: for every node.
        nodes: by the id of the node in the pipeline, on top of `defaults`.

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
    target: Literal["kubeflow", "vertex"] = "kubeflow"
    pipeline_root: PathText | None = None
    defaults: NodeSettings = NodeSettings()
    nodes: dict[str, NodeSettings] = pydantic.Field(default_factory=dict)

    def for_node(self, node_id: str) -> NodeSettings:
        """Returns the settings of one node."""
        own = self.nodes.get(node_id, NodeSettings())
        return NodeSettings(image=self.image).overridden_by(self.defaults).overridden_by(own)
