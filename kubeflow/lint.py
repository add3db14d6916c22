"""Checks a compiled pipeline by the rules of the open-source API server, driver and launcher.

The kfp SDK accepts specs that cannot be run. Each rule says where in Kubeflow Pipelines (2.x) or
Argo it comes from.
"""

import graphlib
import numbers
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from tfx_perf.config import yaml_file
from tfx_perf.core import errors
from tfx_perf.kubeflow.spec import component as component_of
from tfx_perf.kubeflow.spec import tasks

# The server's rule for a pipeline, with TFX's limit of its length, which is shorter.
PIPELINE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
STORES = ("minio://", "s3://", "gs://")
"""The object stores that the launcher knows, and a pipeline root may be in."""

_Spec = dict[str, Any]
_Problems = Iterator[str]

PARAMETER_TYPES: dict[str, type] = {
    "STRING": str,
    "NUMBER_INTEGER": numbers.Integral,
    "NUMBER_DOUBLE": numbers.Real,
    "BOOLEAN": bool,
    "LIST": list,
    "STRUCT": dict,
}


def read(path: str | pathlib.Path) -> dict[str, Any]:
    """Returns the pipeline spec in a YAML file, if the server and `kfp.Client` accept it."""
    documents = documents_in(path)
    if broken := problems(documents):
        others = f" And {len(broken) - 1} more." if len(broken) > 1 else ""
        raise errors.UserError(
            f"Expected a pipeline that Kubeflow accepts. Received: {path} ({broken[0]}).{others}"
        )
    import kfp.components

    try:
        kfp.components.load_component_from_file(str(path))
    except Exception as error:  # the SDK raises anything on specs that it does not understand
        raise errors.UserError(
            f"Expected a pipeline that the kfp SDK can load. Received: {path} "
            f"({type(error).__name__}: {' '.join(str(error).split())})."
        ) from error
    return documents[0]


def documents_in(path: str | pathlib.Path) -> list[Any]:
    """Returns the documents of a YAML file, without checking them further."""
    if pathlib.Path(path).suffix not in (".yaml", ".yml"):
        raise errors.UserError(
            f"Expected a file that ends in .yaml or .yml. Received: path={path}."
        )
    return yaml_file.read_documents(path)


def problems(documents: Sequence[_Spec]) -> list[str]:
    """Returns the reasons, one per line, for which the server would refuse YAML documents."""
    return _broken_rules(documents) or _refused_by_parser(documents)


def _refused_by_parser(documents: Sequence[_Spec]) -> list[str]:
    from kfp.pipeline_spec import pipeline_spec_pb2

    parts = [
        (pipeline_spec_pb2.PipelineSpec(), documents[0]),
        (pipeline_spec_pb2.PipelineDeploymentConfig(), documents[0]["deploymentSpec"]),
        *((pipeline_spec_pb2.PlatformSpec(), document) for document in documents[1:]),
    ]
    problems = []
    for parsed, document in parts:
        try:
            json_format.ParseDict(document, parsed)
        except json_format.ParseError as error:
            problems.append(f"not a {type(parsed).__name__}: {' '.join(str(error).split())}")
    return problems


def _broken_rules(documents: Sequence[_Spec]) -> list[str]:
    if not 1 <= len(documents) <= 2 or not all(isinstance(item, Mapping) for item in documents):
        return ["a pipeline is one YAML document, or two with the platform spec"]
    spec = documents[0]
    for rules in _RULES:
        if broken := [problem for rule in rules for problem in rule(spec)]:
            return broken
    return list(_platform(spec, documents[1])) if len(documents) == 2 else []


def _header(spec: _Spec) -> _Problems:
    # apiserver/template/template.go: isPipelineSpec
    if "pipelineSpec" in spec:
        yield "a PipelineJob (pipelineSpec inside): the server takes the bare spec"
    # apiserver/template/v2_template.go: NewV2SpecTemplate
    if spec.get("schemaVersion") != "2.1.0":
        yield f"schemaVersion {spec.get('schemaVersion')}: the server takes 2.1.0 only"
    # apiserver/template/v2_template.go: "pipelineInfo.name is empty"; the workflow is named by it
    name = spec.get("pipelineInfo", {}).get("name", "")
    if not PIPELINE_NAME.fullmatch(name):
        yield f"pipelineInfo.name {name!r}: lower-case letters, digits and hyphens, 63 at most"


def _root(spec: _Spec) -> _Problems:
    # argocompiler/argo.go: Compile
    if not spec.get("root", {}).get("dag", {}).get("tasks"):
        yield "root.dag.tasks is empty"
    for key in ("components", "deploymentSpec"):
        if not spec.get(key):
            yield f"{key} is empty"


def _references(spec: _Spec) -> _Problems:
    # argocompiler/visitor.go: component and executor of each task
    executors = spec["deploymentSpec"].get("executors", {})
    for name, task in tasks(spec).items():
        component = task.get("componentRef", {}).get("name")
        if component not in spec["components"]:
            yield f"task {name}: there is no component {component}"
        elif spec["components"][component].get("executorLabel") not in executors:
            yield f"component {component}: there is no executor of its label"
        for other in task.get("dependentTasks", []):
            if other not in tasks(spec):
                yield f"task {name}: depends on {other}, which is no task"


def _executors(spec: _Spec) -> _Problems:
    # argocompiler/argo.go: "resolver not implemented yet"; driver/driver.go reads no lifecycle
    for label, executor in spec["deploymentSpec"].get("executors", {}).items():
        if "resolver" in executor:
            yield f"executor {label}: a resolver, which open-source Kubeflow does not have"
        elif "container" in executor:
            container = executor["container"]
            if not container.get("image"):
                yield f"executor {label}: no image"
            if not container.get("command"):
                yield f"executor {label}: no command, which the launcher needs"
            if container.get("lifecycle"):
                yield f"executor {label}: a lifecycle hook, which is never run"
        elif "importer" not in executor:
            yield f"executor {label}: neither container nor importer"


def _task_names(spec: _Spec) -> _Problems:
    # argo workflow/validate: names of DAG tasks; driver: producers are found by display name
    for name, task in tasks(spec).items():
        if not re.fullmatch(r"[a-zA-Z0-9][-a-zA-Z0-9]*", name):
            yield f"task {name}: only letters, digits and hyphens"
        if task.get("taskInfo", {}).get("name") != name:
            yield f"task {name}: taskInfo.name must be the same"


def _types(spec: _Spec) -> _Problems:
    # metadata/client.go: SchemaToArtifactType
    for name, component in spec["components"].items():
        for side in ("inputDefinitions", "outputDefinitions"):
            for key, artifact in component.get(side, {}).get("artifacts", {}).items():
                if not artifact.get("artifactType", {}).get("schemaTitle"):
                    yield f"component {name}: {key} has no schemaTitle"


def _inputs(spec: _Spec) -> _Problems:
    # driver/resolve.go: resolveInputs
    for name, task in tasks(spec).items():
        definitions = component_of(spec, task).get("inputDefinitions", {})
        for kind in ("artifacts", "parameters"):
            given = task.get("inputs", {}).get(kind, {})
            declared = definitions.get(kind, {})
            for key in given.keys() - declared.keys():
                yield f"task {name}: gives {key}, which its component does not take"
            for key, definition in declared.items():
                may_lack = definition.get("isOptional") or "defaultValue" in definition
                if key not in given and not may_lack:
                    yield f"task {name}: {key} is neither given nor optional"
            for key, source in given.items():
                yield from _source(spec, name, key, source)


def _source(spec: _Spec, name: str, key: str, source: _Spec) -> _Problems:
    kind = "artifacts" if "taskOutputArtifact" in source else "parameters"
    output = source.get("taskOutputArtifact") or source.get("taskOutputParameter")
    if output:
        producer = output.get("producerTask")
        if producer not in tasks(spec):
            yield f"task {name}: {key} comes from {producer}, which is no task"
            return
        if producer not in tasks(spec)[name].get("dependentTasks", []):
            yield f"task {name}: {key} comes from {producer}, on which it does not depend"
        made = component_of(spec, tasks(spec)[producer]).get("outputDefinitions", {})
        made_key = output.get("outputArtifactKey") or output.get("outputParameterKey")
        if made_key not in made.get(kind, {}):
            yield f"task {name}: {key} is {made_key} of {producer}, which has no such output"
    elif "componentInputParameter" in source:
        parameter = source["componentInputParameter"]
        if parameter not in _parameters(spec):
            yield f"task {name}: {key} is the run's parameter {parameter}, which is not declared"


def _defaults(spec: _Spec) -> _Problems:
    # apiserver/template/v2_template.go: validatePipelineJobInputs
    for name, definition in _parameters(spec).items():
        kind = definition.get("parameterType")
        if kind not in PARAMETER_TYPES:
            yield f"parameter {name}: parameterType {kind} is unknown"
        elif "defaultValue" in definition and not is_of_type(definition["defaultValue"], kind):
            yield f"parameter {name}: the default {definition['defaultValue']!r} is no {kind}"


def is_of_type(value: Any, kind: str) -> bool:
    """Whether a run's parameter of a type, e.g. `NUMBER_INTEGER`, may have the value."""
    is_wrong_bool = isinstance(value, bool) and kind != "BOOLEAN"
    return isinstance(value, PARAMETER_TYPES[kind]) and not is_wrong_bool


def _cycles(spec: _Spec) -> _Problems:
    # argo workflow/validate: a DAG
    graph = {name: task.get("dependentTasks", []) for name, task in tasks(spec).items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"tasks that wait for each other: {' -> '.join(error.args[1])}"


def _pipeline_root(spec: _Spec) -> _Problems:
    # objectstore/config.go: ParseBucketPathToConfig
    root = spec.get("defaultPipelineRoot", "")
    if root and not root.startswith(STORES):
        yield f"defaultPipelineRoot {root}: the launcher knows minio://, s3:// and gs://"


def _platform(spec: _Spec, platform: _Spec) -> _Problems:
    # apiserver/template/v2_template.go: the second document
    configs = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {})
    if not configs.get("executors"):
        yield "the second document is no platform spec for kubernetes"
    for label, config in configs.get("executors", {}).items():
        if label not in spec["deploymentSpec"]["executors"]:
            yield f"the platform spec is about executor {label}, which is not in the pipeline"
        if config.get("imagePullPolicy", "Always") not in ("Always", "IfNotPresent", "Never"):
            yield f"executor {label}: imagePullPolicy {config['imagePullPolicy']} is unknown"


def _parameters(spec: _Spec) -> _Spec:
    return spec["root"].get("inputDefinitions", {}).get("parameters", {})


_Rule = Callable[[_Spec], _Problems]
# If a rule of one line is broken, those of the next lines would only find the consequences.
_RULES: tuple[tuple[_Rule, ...], ...] = (
    (_header, _root),
    (_references, _executors, _task_names, _types, _defaults, _cycles, _pipeline_root),
    (_inputs,),
)
