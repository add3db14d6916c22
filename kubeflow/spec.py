"""Turns the pipeline spec that TFX compiles into one that a server accepts.

The spec is the JSON form of `PipelineSpec` as nested dicts, changed in place. Until `rename`, a
task, its component and its node in the pipeline have the same name. A second document holds the
settings that only Kubernetes has.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from kubernetes.utils import quantity

from tfx_perf.kubeflow import ui
from tfx_perf.kubeflow.settings import NodeSettings

_Spec = dict[str, Any]

_INPUTS_SPEC_FLAG = "--json_serialized_inputs_spec_args"
# TFX adds this to the producer of a dynamic execution property, but not to the task itself.
_PRODUCER_SUFFIX = "_task"
_GIGABYTE = 10**9


def tasks(spec: _Spec) -> dict[str, _Spec]:
    """Returns the tasks of the pipeline by name."""
    return spec["root"]["dag"]["tasks"]


def component(spec: _Spec, task: _Spec) -> _Spec:
    """Returns the component that a task runs."""
    return spec["components"][task["componentRef"]["name"]]


def executor(spec: _Spec, task: _Spec) -> _Spec:
    """Returns the executor of a task: a dict with one key, e.g. `container`."""
    return spec["deploymentSpec"]["executors"][component(spec, task)["executorLabel"]]


def containers(spec: _Spec) -> Iterator[tuple[str, _Spec]]:
    """Yields name and container of every task that runs in a container."""
    for name, task in tasks(spec).items():
        if "container" in executor(spec, task):
            yield name, executor(spec, task)["container"]


def add_defaults(spec: _Spec, defaults: Mapping[str, Any]) -> None:
    """Adds the defaults of the run's parameters, which TFX leaves out."""
    parameters = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    for name, definition in parameters.items():
        if defaults.get(name) is not None:
            definition["defaultValue"] = defaults[name]


def drop_unresolved(spec: _Spec) -> None:
    """Removes inputs whose producer is not in the pipeline, and corrects dynamic properties."""
    existing = tasks(spec)
    for task in existing.values():
        inputs = task.get("inputs", {})
        definitions = component(spec, task).get("inputDefinitions", {})
        for key, source in list(inputs.get("artifacts", {}).items()):
            if source["taskOutputArtifact"]["producerTask"] not in existing:
                del inputs["artifacts"][key], definitions["artifacts"][key]
        for key, source in inputs.get("parameters", {}).items():
            if "taskOutputParameter" in source:
                output = source["taskOutputParameter"]
                output["producerTask"] = output["producerTask"].removesuffix(_PRODUCER_SUFFIX)
                producer = component(spec, existing[output["producerTask"]])
                made = producer["outputDefinitions"]["parameters"][output["outputParameterKey"]]
                definitions["parameters"][key]["parameterType"] = made["parameterType"]
        if "dependentTasks" in task:
            task["dependentTasks"] = [name for name in task["dependentTasks"] if name in existing]


def adapt(spec: _Spec) -> None:
    """Adds what containers on open-source Kubeflow need: types, UI outputs, the driver."""
    for task in tasks(spec).values():
        _name_types(component(spec, task))
    for name, container in containers(spec):
        # Open-source Kubeflow never runs TFX's driver of the file-based ExampleGens.
        has_driver = container.pop("lifecycle", None) is not None
        arguments = container.get("args", [])
        if _INPUTS_SPEC_FLAG not in arguments:
            continue  # the user's own container
        definition = component(spec, tasks(spec)[name])
        outputs = definition.get("outputDefinitions", {}).get("artifacts", {})
        for key, artifact in list(outputs.items()):
            shown = ui.outputs_beside(key, artifact["artifactType"]["schemaTitle"])
            outputs.update({extra: {"artifactType": _type(kind)} for extra, kind in shown.items()})
        position = arguments.index(_INPUTS_SPEC_FLAG) + 1
        arguments[position] = json.dumps(definition.get("inputDefinitions", {}), sort_keys=True)
        arguments[position + 1 : position + 1] = [
            f"--pipeline_name={spec['pipelineInfo']['name']}",
            f"--node_id={name}",
            *(["--example_gen_driver"] if has_driver else []),
        ]


def _name_types(definition: _Spec) -> None:
    """Replaces the schema of each artifact type by its name; KFP keeps only that."""
    for side in ("inputDefinitions", "outputDefinitions"):
        for artifact in definition.get(side, {}).get("artifacts", {}).values():
            schema = artifact["artifactType"].get("instanceSchema")
            if schema is not None:
                artifact["artifactType"] = _type(yaml.safe_load(schema)["title"])


def _type(title: str) -> _Spec:
    return {"schemaTitle": title, "schemaVersion": "0.0.1"}


def configure(spec: _Spec, settings: Mapping[str, NodeSettings]) -> None:
    """Sets image, resources, environment, retries and caching of each task."""
    for name, container in containers(spec):
        node, task = settings[name], tasks(spec)[name]
        container["image"] = node.image if node.image else container["image"]
        resources = container.get("resources", {}) | _resources(node)
        if resources:
            container["resources"] = resources
        if node.environment:
            container["env"] = [
                {"name": variable, "value": value} for variable, value in node.environment.items()
            ]
        if node.retries:
            task["retryPolicy"] = {
                "maxRetryCount": node.retries,
                "backoffDuration": "60s",
                "backoffFactor": 2.0,
                "backoffMaxDuration": "3600s",
            }
        if node.cache is not None:
            task["cachingOptions"] = {"enableCache": True} if node.cache else {}


def _resources(node: NodeSettings) -> _Spec:
    """Returns the resources in the fields that all 2.x servers read: cores and gigabytes."""
    resources: _Spec = {}
    for key, text, unit in (
        ("cpuRequest", node.cpu_request, 1),
        ("cpuLimit", node.cpu_limit, 1),
        ("memoryRequest", node.memory_request, _GIGABYTE),
        ("memoryLimit", node.memory_limit, _GIGABYTE),
    ):
        if text:
            resources[key] = float(quantity.parse_quantity(text) / unit)
    if node.accelerator:
        resources["accelerator"] = {
            "type": node.accelerator,
            "count": str(node.accelerator_count),  # an int64, which JSON holds as text
        }
    return resources


def rename(spec: _Spec) -> None:
    """Gives tasks, components and executors names that Argo and `kfp.local` accept."""
    renamed: dict[str, str] = {name: task_name(name) for name in tasks(spec)}
    components, executors = {}, {}
    for name, task in tasks(spec).items():
        definition = component(spec, task)
        executors[_executor_name(name)] = executor(spec, task)
        definition["executorLabel"] = _executor_name(name)
        components[f"comp-{task_name(name)}"] = definition
        task["componentRef"]["name"] = f"comp-{task_name(name)}"
        # The driver finds a producer by its display name, so that must be the task's.
        task["taskInfo"]["name"] = renamed[name]
        if "dependentTasks" in task:
            task["dependentTasks"] = sorted(renamed[other] for other in task["dependentTasks"])
        for sources in task.get("inputs", {}).values():
            for source in sources.values():
                output = source.get("taskOutputArtifact") or source.get("taskOutputParameter")
                if output:
                    output["producerTask"] = renamed[output["producerTask"]]
    spec["components"] = components
    spec["deploymentSpec"]["executors"] = executors
    spec["root"]["dag"]["tasks"] = {renamed[name]: task for name, task in tasks(spec).items()}


def task_name(node_id: str) -> str:
    """Returns a node's name in the spec, e.g. `csv-example-gen` for `CsvExampleGen`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", node_id).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def _executor_name(node_id: str) -> str:
    return f"exec-{task_name(node_id)}"  # `kfp.local` requires it, and `comp-` for components


def platform_spec(settings: Mapping[str, NodeSettings]) -> dict[str, Any] | None:
    """Returns the platform document; None if no container needs one.

    Its fields, in the format of kfp-kubernetes, are those that every 2.x server reads; earlier
    servers do not know e.g. `secretNameParameter`.
    """
    configs = {
        _executor_name(name): config for name, node in settings.items() if (config := _config(node))
    }
    if not configs:
        return None
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": configs}}}}


def _config(node: NodeSettings) -> dict[str, Any]:
    metadata = {"labels": dict(node.pod_labels), "annotations": dict(node.pod_annotations)}
    config = {
        "nodeSelector": {"labels": dict(node.node_selector)} if node.node_selector else None,
        "tolerations": [each.model_dump(exclude_none=True) for each in node.tolerations],
        "secretAsEnv": [
            {
                "secretName": source.partition("/")[0],
                "keyToEnv": [{"secretKey": source.partition("/")[2], "envVar": variable}],
            }
            for variable, source in node.secret_environment.items()
        ],
        "secretAsVolume": [
            {"secretName": secret, "mountPath": folder}
            for folder, secret in node.secret_volumes.items()
        ],
        "pvcMount": [
            {"constant": claim, "mountPath": folder} for folder, claim in node.volumes.items()
        ],
        "podMetadata": {key: values for key, values in metadata.items() if values},
        "imagePullPolicy": node.image_pull_policy,
        "imagePullSecret": [{"secretName": secret} for secret in node.image_pull_secrets],
    }
    return {key: value for key, value in config.items() if value}
