"""Compiles a TFX pipeline to a pipeline spec that a server accepts."""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from google.protobuf import json_format
from tfx import components as tfx_components
from tfx import v1 as tfx
from tfx.dsl.components.base import base_node
from tfx.orchestration.kubeflow.v2 import pipeline_builder
from tfx.types import standard_component_specs

from tfx_perf.core import errors, storage, validation
from tfx_perf.kubeflow import lint, notes, spec
from tfx_perf.kubeflow.settings import KubeflowSettings
from tfx_perf.pipelines import parameters

_LOGGER = logging.getLogger(__name__)


def compile_pipeline(
    pipeline: tfx.dsl.Pipeline,
    *,
    output: str | os.PathLike[str],
    settings: KubeflowSettings | Mapping[str, Any],
) -> pathlib.Path:
    """Writes the pipeline as YAML; returns the path of the file.

    Every Resolver is left out, since the server has none: the inputs that it would fill stay
    empty, and PerfEvaluator finds its ledger through `gate.baseline_uri`. Parts that a run will
    lack are logged, see `tfx_perf.kubeflow.notes`.

    A pipeline object can be compiled once, as with TFX's own runners.

    Args:
        pipeline: as for any TFX runner; its functions given by import path, since the
            containers have no module files. If its `pipeline_root` is not in an object
            store, `settings.pipeline_root` is used.
        output: the file, `.yaml` or `.yml`; its folder is created.
        settings: a `KubeflowSettings` or a mapping of its attributes.

    Raises:
        UserError: the server would refuse the pipeline or the settings; no file is written.

    Example:
        ```python
        compile_pipeline(pipeline, output="taxi.yaml", settings={"image": "example/taxi:1"})
        ```
    """
    settings = KubeflowSettings.of(settings)
    path = pathlib.Path(output)
    if path.suffix not in (".yaml", ".yml"):
        raise errors.UserError(
            f"Expected a file name that ends in .yaml or .yml. Received: output={path}."
        )
    _check(pipeline, settings)
    part = _Part(pipeline, _without_resolvers(pipeline.components))
    document = _build(part, settings.image)
    root = _pipeline_root(pipeline, settings)
    if root:
        document["defaultPipelineRoot"] = root
    written = parameters.written(part.components)
    spec.add_defaults(document, {name: value.default for name, value in written.items()})
    spec.drop_unresolved(document)
    spec.adapt(document)
    nodes = {name: settings.for_node(name) for name, _ in spec.containers(document)}
    spec.configure(document, nodes)
    spec.rename(document)
    platform = spec.platform_spec(nodes)
    documents = [document, platform] if platform else [document]
    problems = lint.problems(documents)
    if problems:
        raise errors.UserError(
            f"Expected a pipeline that Kubeflow accepts. Received: {problems[0]}."
        )
    for note in notes.notes(pipeline, settings):
        _LOGGER.warning("%s", note)
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_text(path, yaml.safe_dump_all(documents, allow_unicode=True))
    return path


@dataclasses.dataclass(frozen=True)
class _Part:
    """A pipeline to compile without some of its nodes; the original stays unchanged."""

    pipeline: tfx.dsl.Pipeline
    components: Sequence[base_node.BaseNode]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipeline, name)


def _check(pipeline: tfx.dsl.Pipeline, settings: KubeflowSettings) -> None:
    name = pipeline.pipeline_info.pipeline_name
    if not lint.PIPELINE_NAME.fullmatch(name):
        raise errors.UserError(
            "Expected a pipeline name of lower-case letters, digits and hyphens, 63 at most. "
            f"Received: pipeline_name={name}. "
            f"Try {spec.task_name(name)[:63].strip('-') or 'pipeline'}."
        )
    validation.check_nodes(settings.nodes, sorted(node.id for node in pipeline.components))
    for node in pipeline.components:
        if isinstance(node, tfx_components.InfraValidator):
            raise errors.UserError(
                f"Expected nodes that run in one container. Received: {node.id}, an "
                "InfraValidator, which TFX cannot compile for Kubeflow; leave it out."
            )
        module_file = node.exec_properties.get(standard_component_specs.MODULE_FILE_KEY)
        if module_file:
            raise errors.UserError(
                "Expected functions by import path, e.g. run_fn='models.model.run_fn', installed "
                f"in the image. Received: {node.id} with module_file={module_file}."
            )


def _without_resolvers(nodes: Sequence[base_node.BaseNode]) -> list[base_node.BaseNode]:
    removed = notes.left_out(nodes)
    remaining = [node for node in nodes if node.id not in removed]
    for node, key, producer in notes.inputs_from(remaining, removed | notes.missing(nodes)):
        declared = node.spec.INPUTS.get(key)  # none for the input of a dynamic property
        if declared is None or not declared.optional:
            source = (
                f"the resolver {producer}, which Kubeflow does not have"
                if producer in removed
                else f"{producer}, which is not in the pipeline"
            )
            raise errors.UserError(
                "Expected required inputs to come from nodes of the pipeline. "
                f"Received: {node.id}.{key} from {source}."
            )
    return remaining


def _build(part: _Part, image: str) -> dict[str, Any]:
    """Returns TFX's own spec as a dict; its errors become one line."""
    try:
        built = pipeline_builder.PipelineBuilder(
            tfx_pipeline=part,
            default_image=image,
            default_commands=("python", "-m", "tfx_perf.kubeflow.entrypoint"),
            use_pipeline_spec_2_1=True,
        ).build()
    except (KeyError, NotImplementedError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise errors.UserError(
            "Expected a pipeline that TFX can compile for Kubeflow. "
            f"Received: pipeline={part.pipeline_info.pipeline_name} ({reason})."
        ) from error
    built.schema_version = "2.1.0"
    built.sdk_version = f"tfx-{tfx.__version__}"
    return json_format.MessageToDict(built)


def _pipeline_root(pipeline: tfx.dsl.Pipeline, settings: KubeflowSettings) -> str | None:
    given, root = settings.pipeline_root, str(pipeline.pipeline_info.pipeline_root)
    if given and not given.startswith(lint.STORES):
        raise errors.UserError(
            f"Expected an object store, {' or '.join(lint.STORES)}. "
            f"Received: pipeline_root={given}."
        )
    return given or (root if root.startswith(lint.STORES) else None)
