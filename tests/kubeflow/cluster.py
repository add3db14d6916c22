"""An emulation of Kubeflow Pipelines' driver, launcher and object store, in subprocesses.

What is emulated, after backend/src/v2/{driver,component,metadata} of Kubeflow Pipelines 2.x: inputs
that have lost their types, minio:// URIs, staging into folders of a pod, an object store without
folders, the output `executor-logs`, what the metadata store refuses and how it wraps lists,
conditions over the executor's input, retries with the same input. Each task is a process of its
own with an empty file system below its folder; nothing else is shared.
"""

import dataclasses
import graphlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import uuid

import yaml

ROOT = "minio://mlpipeline/v2/artifacts"
_FOLDER = pathlib.Path(__file__).parent
_INSTALLED = os.pathsep.join(map(str, (_FOLDER, _FOLDER / "user")))  # as in an image
_START = (
    "import pathlib, sys; from tfx_perf.kubeflow import entrypoint; "
    "entrypoint.run(sys.argv[2:], staging_root=pathlib.Path(sys.argv[1]))"
)
_TIMEOUT_SECONDS = 300


@dataclasses.dataclass
class TaskResult:
    """The outputs of a task: artifacts as the metadata store has them, values, and its tries."""

    artifacts: dict
    values: dict
    log: str
    tries: int = 1


class TaskFailed(Exception):
    """A container ended with another exit code than 0 as often as it may."""


class Cluster:
    """Runs compiled pipelines; the object store lasts, the pods do not."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.store = self.folder / "store"

    def stored(self, uri):
        """Returns where the object store keeps a URI."""
        return self.store / uri.partition("://")[2]

    def run(self, path, run_id, **parameters):
        """Runs a pipeline; returns a `TaskResult` by task, None for one that was skipped."""
        spec = next(yaml.safe_load_all(pathlib.Path(path).read_text()))
        definitions = spec["root"].get("inputDefinitions", {}).get("parameters", {})
        given = {
            name: parameters.pop(name.replace("-", "_"), definition.get("defaultValue"))
            for name, definition in definitions.items()
        }
        assert not parameters, f"the pipeline has no parameters {parameters}"
        assert None not in given.values(), "a parameter has neither value nor default"
        tasks = spec["root"]["dag"]["tasks"]
        graph = {name: task.get("dependentTasks", []) for name, task in tasks.items()}
        results = {}
        for name in graphlib.TopologicalSorter(graph).static_order():
            if any(results[other] is None for other in graph[name]):
                results[name] = None  # Argo leaves out what depends on a skipped task
                continue
            results[name] = _Task(self, spec, name, run_id=run_id).run(given, results)
        return results


class _Task:
    def __init__(self, cluster, spec, name, *, run_id):
        self._cluster, self._name = cluster, name
        self._task = spec["root"]["dag"]["tasks"][name]
        self._component = spec["components"][self._task["componentRef"]["name"]]
        label = self._component["executorLabel"]
        self._container = spec["deploymentSpec"]["executors"][label]["container"]
        self._pods = cluster.folder / "pods" / run_id / name
        self._prefix = f"{ROOT}/{spec['pipelineInfo']['name']}/{run_id}/{name}/{uuid.uuid4()}"

    def run(self, parameters, results):
        inputs = self._inputs(parameters, results)
        condition = self._task.get("triggerPolicy", {}).get("condition")
        if condition and not _holds(condition, inputs):
            return None
        allowed = 1 + self._task.get("retryPolicy", {}).get("maxRetryCount", 0)
        for attempt in range(1, allowed + 1):
            pod = self._pods / str(attempt)
            executor_input = self._executor_input(inputs, pod)
            done = self._start(executor_input, pod)
            if done.returncode == 0:
                return self._publish(executor_input, pod, log=done.stdout, tries=attempt)
        raise TaskFailed(f"{self._name} after {allowed} tries:\n{done.stdout[-4000:]}")

    def _inputs(self, parameters, results):
        given = self._task.get("inputs", {})
        values, artifacts = {}, {}
        for key, source in given.get("parameters", {}).items():
            if "runtimeValue" in source:
                values[key] = source["runtimeValue"]["constant"]
            elif "componentInputParameter" in source:
                values[key] = parameters[source["componentInputParameter"]]
            else:
                output = source["taskOutputParameter"]
                values[key] = results[output["producerTask"]].values[output["outputParameterKey"]]
        for key, source in given.get("artifacts", {}).items():
            output = source["taskOutputArtifact"]
            made = results[output["producerTask"]].artifacts[output["outputArtifactKey"]]
            artifacts[key] = {"artifacts": [{**made, "type": {"instanceSchema": ""}}]}
        return {"parameterValues": values, "artifacts": artifacts}

    def _executor_input(self, inputs, pod):
        definitions = self._component.get("outputDefinitions", {})
        types = {
            key: definition["artifactType"]
            for key, definition in definitions.get("artifacts", {}).items()
        }
        types["executor-logs"] = {"schemaTitle": "system.Artifact"}
        empty = {key: {"type": kind, "metadata": {}} for key, kind in types.items()}
        return {
            "inputs": inputs,
            "outputs": {
                "artifacts": {
                    key: {"artifacts": [given | {"name": key, "uri": f"{self._prefix}/{key}"}]}
                    for key, given in empty.items()
                },
                "parameters": {
                    key: {"outputFile": str(pod / "tmp" / "outputs" / key)}
                    for key in definitions.get("parameters", {})
                },
                "outputFile": str(pod / "tmp" / "kfp_outputs" / "output_metadata.json"),
            },
        }

    def _start(self, executor_input, pod):
        for artifacts in executor_input["inputs"]["artifacts"].values():
            uri = artifacts["artifacts"][0]["uri"]  # the launcher downloads the first only
            _copy_files(self._cluster.stored(uri), _staged(pod, uri))
        for artifacts in executor_input["outputs"]["artifacts"].values():
            _staged(pod, artifacts["artifacts"][0]["uri"]).parent.mkdir(parents=True, exist_ok=True)
        assert self._container["command"][-1] == "tfx_perf.kubeflow.entrypoint"
        arguments = [
            json.dumps(executor_input) if argument == "{{$}}" else argument
            for argument in self._container["args"]
        ]
        environment = {item["name"]: item["value"] for item in self._container.get("env", [])}
        return subprocess.run(
            [sys.executable, "-c", _START, str(pod), *arguments],
            cwd=pod,
            env={**os.environ, "PYTHONPATH": _INSTALLED, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )

    def _publish(self, executor_input, pod, *, log, tries):
        outputs = executor_input["outputs"]
        written = json.loads(pathlib.Path(outputs["outputFile"]).read_text())
        assert written.keys() <= {"artifacts", "parameterValues"}
        artifacts = {}
        for key, provisioned in outputs["artifacts"].items():
            (artifact,) = provisioned["artifacts"]
            (own,) = written.get("artifacts", {}).get(key, {}).get("artifacts", [{}])
            assert own.keys() <= {"name", "uri", "metadata"}
            uri = own.get("uri") or artifact["uri"]
            if _staged(pod, uri).exists():
                _copy_files(_staged(pod, uri), self._cluster.stored(uri))
            metadata = {name: _recorded(value) for name, value in own.get("metadata", {}).items()}
            metadata |= {"display_name": key, "store_session_info": "{}"}
            number = abs(hash(uri)) % 10**6
            artifacts[key] = {"name": f"{number}", "uri": uri, "metadata": metadata}
        shutil.rmtree(pod)
        return TaskResult(
            artifacts=artifacts, values=written.get("parameterValues", {}), log=log, tries=tries
        )


def _staged(pod, uri):
    scheme, _, rest = uri.partition("://")
    assert scheme == "minio", f"the launcher would not upload {uri}"
    return pod / "minio" / rest


def _copy_files(source, target):
    """Copies files only: an object store has no folders, and so no empty ones."""
    for path in [source] if source.is_file() else source.rglob("*"):
        if path.is_file():
            copy = target if path == source else target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)


def _recorded(value):
    """Returns metadata as the metadata store gives it back (StructValueToMLMDValue)."""
    assert value is not None, "the metadata store refuses null"
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        return {"list": value}
    if isinstance(value, dict):
        return {"struct": value}
    return value


def _holds(condition, inputs):
    """Evaluates a condition: the part of CEL that TFX writes, which is Python but for two signs."""
    python = re.sub(r"\.(artifacts|metadata|uri)", r"['\1']", condition)
    python = python.replace("&&", " and ").replace("||", " or ").replace("!(", " not (")
    return eval(python, {"__builtins__": {}, "inputs": inputs})  # written by the compiler
