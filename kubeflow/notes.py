"""Notes on parts that a compiled pipeline lacks, and on files that its pods will not find."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx import v1 as tfx
from tfx.dsl.components.base import base_node
from tfx.dsl.components.common import resolver

from tfx_perf.components import PerfEvaluator
from tfx_perf.config import PerfConfig
from tfx_perf.kubeflow import lint
from tfx_perf.kubeflow.settings import KubeflowSettings

# The consequence of an empty input, by its name.
_CONSEQUENCES = {
    "baseline_model": "checks its absolute thresholds only",
    "previous_metrics": "tunes again in each run",
    "previous_plans": "searches again in each run",
}
# Properties that are paths even if they are relative.
_PATH_KEYS = {"baseDirectory", "base_directory", "baseline_uri", "checkpoint_folder", "input_base"}


def notes(pipeline: tfx.dsl.Pipeline, settings: KubeflowSettings) -> list[str]:
    """Returns remarks for the user before a run, one sentence each."""
    nodes = pipeline.components
    return [
        *_dropped_root(str(pipeline.pipeline_info.pipeline_root), settings),
        *_dropped_resolvers(nodes),
        *_gates_without_baseline(nodes),
        *_inputs_without_node(nodes),
        *_lost_paths(nodes, settings),
    ]


def left_out(nodes: Sequence[base_node.BaseNode]) -> set[str]:
    """Returns the ids of the resolvers, which the server lacks."""
    return {node.id for node in nodes if isinstance(node, resolver.Resolver)}


def inputs_from(
    nodes: Sequence[base_node.BaseNode], producers: set[str]
) -> Iterator[tuple[base_node.BaseNode, str, str]]:
    """Yields node, key and producer of the inputs that come from certain nodes."""
    for node in nodes:
        for key, channel in node.inputs.items():
            producer = getattr(channel, "producer_component_id", None)
            if producer in producers:
                yield node, key, producer


def missing(nodes: Sequence[base_node.BaseNode]) -> set[str]:
    """Returns the ids of nodes that produce inputs but are not in the pipeline."""
    named: set[Any] = {
        getattr(channel, "producer_component_id", None)
        for node in nodes
        for channel in node.inputs.values()
    }
    return named - {None, *(node.id for node in nodes)}


def _dropped_root(root: str, settings: KubeflowSettings) -> Iterator[str]:
    if root and not settings.pipeline_root and not root.startswith(lint.STORES):
        yield (
            f"pipeline_root={root} is dropped, since no pod sees it: that of the run counts, or "
            "the server's own. Give the settings a pipeline_root in an object store."
        )


def _dropped_resolvers(nodes: Sequence[base_node.BaseNode]) -> Iterator[str]:
    for removed in sorted(left_out(nodes)):
        empty = []
        for node, key, _ in inputs_from(nodes, {removed}):
            then = _CONSEQUENCES.get(key)
            empty.append(f"{node.id}.{key} stays empty" + (f", and it {then}" if then else ""))
        yield (
            f"The resolver {removed} is dropped, since Kubeflow has no resolvers: "
            f"{'; '.join(empty) or 'no node reads it'}."
        )


def _gates_without_baseline(nodes: Sequence[base_node.BaseNode]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, PerfEvaluator):
            gate = PerfConfig.from_json(node.exec_properties["config"]).gate
            if not gate.baseline_uri:
                yield (
                    f"{node.id} has no gate.baseline_uri, and Kubeflow has no resolvers: it will "
                    "compare no run with another, and only absolute limits refuse."
                )


def _inputs_without_node(nodes: Sequence[base_node.BaseNode]) -> Iterator[str]:
    for node, key, producer in inputs_from(nodes, missing(nodes)):
        yield (
            f"{node.id}.{key} stays empty, since {producer} is not in the pipeline. Add it to the "
            "pipeline's components."
        )


def _lost_paths(nodes: Sequence[base_node.BaseNode], settings: KubeflowSettings) -> Iterator[str]:
    for node in nodes:
        node_settings = settings.for_node(node.id)
        mounts = (*node_settings.volumes, *node_settings.secret_volumes)
        for name, path in _paths(node.exec_properties):
            if not any(path == mount or path.startswith(f"{mount}/") for mount in mounts):
                yield (
                    f"{node.id} looks for {name}={path} in its pod, which has no files of this "
                    "machine: give a URL of an object store, mount a volume there "
                    f"(nodes.{node.id}.volumes), or put it into the image."
                )


def _paths(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields name and value of the properties that are local paths, also within JSON."""
    for key, value in values.items():
        if isinstance(value, str) and value.startswith("{"):
            with contextlib.suppress(ValueError):  # other text that begins with a brace
                value = json.loads(value)  # noqa: PLW2901
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", path) for name, path in _paths(value))
        elif isinstance(value, str):
            is_relative = value and key in _PATH_KEYS and "://" not in value
            if value.startswith("/") or is_relative:
                yield key, value
