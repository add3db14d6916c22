"""Copies a project template, whole or not at all."""

import dataclasses
import importlib.resources
import pathlib
import re
import shutil

from tfx_perf.core import errors

_PLACEHOLDER = "{{PIPELINE_NAME}}"
# What Airflow and ML Metadata take; Kubeflow Pipelines take less, see docs/templates.md.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@dataclasses.dataclass(frozen=True)
class Template:
    """A folder of files, and of tfx-perf's own (target to resource), that become a project."""

    name: str
    summary: str
    from_package: tuple[tuple[str, str], ...] = ()


PERF = Template(
    name="perf",
    summary="the whole chain, from CSV files or TFRecords to a pushed model, on every orchestrator",
    from_package=(("pipeline/training_pipeline.py", "tfx_perf.pipelines:training_pipeline.py"),),
)
PERF_ADDON = Template(
    name="perf-addon",
    summary="the four components for a TFX project that exists, and what to change in it",
)
TEMPLATES = {template.name: template for template in (PERF, PERF_ADDON)}


def check_pipeline_name(name: str) -> str:
    """Returns the name of a pipeline if every orchestrator's records can hold it."""
    if not _NAME.fullmatch(name):
        raise errors.UserError(
            "Expected a pipeline name of at most 63 letters, digits, - and _, the first a letter "
            f"or digit. Received: pipeline_name={name}."
        )
    return name


def copy_project(
    template: Template, *, pipeline_name: str, destination: pathlib.Path
) -> list[pathlib.Path]:
    """Writes a new project with the pipeline's name to a free folder; returns its files, sorted."""
    check_pipeline_name(pipeline_name)
    destination = destination.absolute()
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise errors.UserError(
            "Expected a folder that is empty or does not exist. "
            f"Received: destination_path={destination}."
        )
    draft = destination.with_name(f".{destination.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for target, content in contents(template, pipeline_name=pipeline_name).items():
            path = draft / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        if destination.exists():
            destination.rmdir()
        draft.rename(destination)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise errors.UserError(
            "Expected a folder that can be written. "
            f"Received: destination_path={destination} ({error.strerror})."
        ) from error
    return sorted(path for path in destination.rglob("*") if path.is_file())


def named(name: str) -> Template:
    """Returns the template with that name."""
    try:
        return TEMPLATES[name.replace("_", "-")]
    except KeyError:
        raise errors.UserError(
            f"Expected one of the templates {', '.join(TEMPLATES)}. Received: model={name}."
        ) from None


def contents(template: Template, *, pipeline_name: str) -> dict[str, str]:
    """Returns the text of each of the template's files, by its path in the project."""
    root = pathlib.Path(
        str(importlib.resources.files("tfx_perf.templates") / template.name.replace("-", "_"))
    )
    sources = {
        str(path.relative_to(root)): path
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for target, resource in template.from_package:
        package, _, name = resource.partition(":")
        sources[target] = pathlib.Path(str(importlib.resources.files(package) / name))
    return {
        target: path.read_text(encoding="utf-8").replace(_PLACEHOLDER, pipeline_name)
        for target, path in sources.items()
    }
