"""What the launcher asks a container to do, in the form that TFX needs it."""

import copy
import pathlib
from collections.abc import Mapping
from typing import Any

from tfx_perf.kubeflow import ui_outputs
from tfx_perf.kubeflow.staging import Staging

_Json = dict[str, Any]

# What the metadata store of Kubeflow wraps lists and mappings in, and never takes off.
_WRAPPERS = ("list", "struct")

# Where the pipeline stands in a URI, counted from its end.
_PIPELINE_DEPTHS = (5, 4)


class Invocation:
    """An `ExecutorInput` of the launcher, for one task.

    Args:
        executor_input: as the launcher fills it in for `{{$}}`.
        inputs_spec: the component's declared inputs; open-source Kubeflow leaves the types of
            the artifacts out.
        staging: where the artifacts are.

    Attributes:
        output_file: where the launcher expects the `ExecutorOutput`.
        ui_outputs: outputs for the UI, name to artifact, that TFX must not see.
    """

    def __init__(self, executor_input: _Json, inputs_spec: _Json, staging: Staging) -> None:
        given = copy.deepcopy(executor_input)
        self._uris = _artifact_uris(given.get("outputs", {}))
        self.output_file: str = given.get("outputs", {}).get("outputFile", "")
        self.ui_outputs: dict[str, _Json] = {}
        self._inputs = _typed_inputs(given.get("inputs", {}), inputs_spec, staging)
        self._outputs = given.get("outputs", {})
        outputs = self._outputs.get("artifacts", {})
        for name in list(outputs):
            artifact = _single(outputs[name], staging)
            if _title(artifact).startswith(ui_outputs.PREFIX):
                del outputs[name]
                self.ui_outputs[name] = artifact
            else:
                outputs[name] = {"artifacts": [artifact]}

    def executor_input(self, output_file: pathlib.Path) -> _Json:
        """Returns the `ExecutorInput` for TFX: typed, with local paths, without what it misreads.

        Args:
            output_file: where TFX's driver may write to.
        """
        return {
            "inputs": self._inputs,
            "outputs": {**self._outputs, "outputFile": str(output_file)},
        }

    def run_id(self, pipeline_name: str) -> str | None:
        """Returns the id of the run, which open-source Kubeflow gives only in the artifacts' URIs.

        They end in `<pipeline>/<run>/<task>/<uuid>/<key>`, in earlier versions without the uuid.

        Args:
            pipeline_name: of the pipeline that the run is of.
        """
        for uri in self._uris:
            parts = uri.split("/")
            for depth in _PIPELINE_DEPTHS:
                if len(parts) >= depth and parts[-depth] == pipeline_name:
                    return parts[1 - depth]
        return None


def _artifact_uris(outputs: Mapping[str, Any]) -> list[str]:
    return [
        artifact["uri"]
        for name, artifacts in sorted(outputs.get("artifacts", {}).items())
        for artifact in artifacts["artifacts"]
    ]


def _typed_inputs(inputs: _Json, inputs_spec: _Json, staging: Staging) -> _Json:
    """Returns the inputs with the declared types; those that nothing was given for are left out."""
    declared = inputs_spec.get("artifacts", {})
    typed = {}
    for name, artifacts in inputs.get("artifacts", {}).items():
        if not artifacts.get("artifacts"):
            continue
        items = [_staged(artifact, staging) for artifact in artifacts["artifacts"]]
        if name in declared:
            for artifact in items:
                artifact["type"] = declared[name]["artifactType"]
        typed[name] = {"artifacts": items}
    return {**inputs, "artifacts": typed}


def _single(artifacts: _Json, staging: Staging) -> _Json:
    (artifact,) = artifacts["artifacts"]
    return _staged(artifact, staging)


def _staged(artifact: _Json, staging: Staging) -> _Json:
    metadata = {
        key: staging.staged(_unwrapped(value))
        for key, value in artifact.get("metadata", {}).items()
        if value is not None
    }
    return {**artifact, "uri": staging.path(artifact["uri"]), "metadata": metadata}


def _unwrapped(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        (key, inner) = next(iter(value.items()))
        if key in _WRAPPERS and isinstance(inner, (dict, list)):
            return inner
    return value


def _title(artifact: _Json) -> str:
    kind = artifact.get("type", {})
    if "schemaTitle" in kind:
        return kind["schemaTitle"]
    # Newer servers send the whole schema, older ones an empty one.
    return kind.get("instanceSchema", "").partition("title:")[2].strip()
