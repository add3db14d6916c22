"""The launcher's request to a container, and local folders for artifacts in an object store.

The launcher of Kubeflow Pipelines downloads inputs to a local folder, and uploads outputs from
one, named after the URI (`LocalPathForURI` in backend/src/v2/component/launcher_v2.go). TFX
writes to URIs itself, and knows neither minio:// nor s3://.
"""

import copy
import pathlib
from collections.abc import Callable
from typing import Any

from tfx_perf.kubeflow import ui

_Json = dict[str, Any]

_FOLDERS = {"minio": "minio", "s3": "s3", "gs": "gcs"}
_SCHEMES = {folder: scheme for scheme, folder in _FOLDERS.items()}
# Keys that Kubeflow's metadata store wraps around lists and mappings, and never removes.
_WRAPPERS = ("list", "struct")
# The positions of the pipeline's name in a URI, counted from its end.
_PIPELINE_DEPTHS = (5, 4)


class Staging:
    """Translates between URIs of object stores and the launcher's folders in `root`."""

    def __init__(self, root: pathlib.Path = pathlib.Path("/")) -> None:
        self._root = root

    def path(self, uri: str) -> str:
        """Returns the local path of a URI; a URI of another store, or a path, is unchanged."""
        scheme, separator, rest = uri.partition("://")
        if not separator or scheme not in _FOLDERS:
            return uri
        return str(self._root / _FOLDERS[scheme] / rest)

    def uri(self, path: str) -> str:
        """Returns the URI for a local path; other paths are unchanged."""
        if not path.startswith("/"):
            return path
        try:
            folder, *rest = pathlib.Path(path).relative_to(self._root).parts
        except ValueError:  # not below the root, or the root itself
            return path
        if folder not in _SCHEMES or not rest:
            return path
        return f"{_SCHEMES[folder]}://{'/'.join(rest)}"

    def staged(self, value: Any) -> Any:
        """Returns a JSON value with local paths for every URI in it."""
        return _mapped(value, self.path)

    def restored(self, value: Any) -> Any:
        """Returns a JSON value with URIs for every local path in it."""
        return _mapped(value, self.uri)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    return value


class Invocation:
    """An `ExecutorInput` of the launcher, for one task.

    Its artifacts get the types of the component's declared inputs, which open-source Kubeflow
    leaves out. `ui_outputs` maps names to artifacts for the UI, which TFX must not see.
    """

    def __init__(self, executor_input: _Json, inputs_spec: _Json, staging: Staging) -> None:
        given = copy.deepcopy(executor_input)
        self._outputs = given.get("outputs", {})
        outputs = self._outputs.get("artifacts", {})
        self._uris = [outputs[name]["artifacts"][0]["uri"] for name in sorted(outputs)]
        self.output_file: str = self._outputs.get("outputFile", "")
        self.ui_outputs: dict[str, _Json] = {}
        self._inputs = _typed_inputs(given.get("inputs", {}), inputs_spec, staging)
        for name in list(outputs):
            (artifact,) = outputs[name]["artifacts"]
            artifact = _staged(artifact, staging)
            if _title(artifact).startswith(ui.PREFIX):
                del outputs[name]
                self.ui_outputs[name] = artifact
            else:
                outputs[name] = {"artifacts": [artifact]}

    def executor_input(self, output_file: pathlib.Path) -> _Json:
        """Returns the `ExecutorInput` for TFX, typed, with local paths and an output file."""
        return {
            "inputs": self._inputs,
            "outputs": {**self._outputs, "outputFile": str(output_file)},
        }

    def run_id(self, pipeline_name: str) -> str | None:
        """Returns the id of the run, which open-source Kubeflow gives only in the artifacts' URIs.

        The URIs end in `<pipeline>/<run>/<task>/<uuid>/<key>`; in earlier versions without uuid.
        """
        for uri in self._uris:
            parts = uri.split("/")
            for depth in _PIPELINE_DEPTHS:
                if len(parts) >= depth and parts[-depth] == pipeline_name:
                    return parts[1 - depth]
        return None


def _typed_inputs(inputs: _Json, inputs_spec: _Json, staging: Staging) -> _Json:
    declared = inputs_spec.get("artifacts", {})
    typed = {}
    for name, artifacts in inputs.get("artifacts", {}).items():
        if artifacts.get("artifacts"):
            kind = {"type": declared[name]["artifactType"]} if name in declared else {}
            items = [_staged(artifact, staging) | kind for artifact in artifacts["artifacts"]]
            typed[name] = {"artifacts": items}
    return {**inputs, "artifacts": typed}


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
