"""Everything that Kubeflow has to know and the pipeline does not say."""

import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic

from tfx_perf import errors, validation
from tfx_perf.kubeflow.node_settings import NodeSettings


class KubeflowSettings(pydantic.BaseModel):
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

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    image: Annotated[str, pydantic.Field(min_length=1)]
    target: Literal["kubeflow", "vertex"] = "kubeflow"
    pipeline_root: str | None = None
    defaults: NodeSettings = NodeSettings()
    nodes: dict[str, NodeSettings] = pydantic.Field(default_factory=dict)

    def for_node(self, node_id: str) -> NodeSettings:
        """Returns the settings of one node."""
        own = self.nodes.get(node_id, NodeSettings())
        return NodeSettings(image=self.image).overridden_by(self.defaults).overridden_by(own)

    @classmethod
    def of(
        cls, settings: "KubeflowSettings | Mapping[str, Any]", *, source: str = "settings"
    ) -> "KubeflowSettings":
        """Returns the settings themselves, or what nested mappings say.

        Args:
            settings: as attributes or as a mapping.
            source: what to call them in an error, e.g. the file's path.

        Raises:
            UserError: an unknown key, or a value of the wrong type or range.
        """
        if isinstance(settings, cls):
            return settings
        try:
            return cls.model_validate(settings)
        except pydantic.ValidationError as error:
            explanation = validation.explain(error, model=cls, source=source)
            raise errors.UserError(explanation) from error

    @classmethod
    def from_yaml(cls, path: str | pathlib.Path) -> "KubeflowSettings":
        """Reads the settings from a YAML file.

        Raises:
            UserError: the file cannot be read, is not YAML, or holds a wrong setting.
        """
        return cls.of(validation.read_yaml(path), source=str(path))
