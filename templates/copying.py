"""Copies a project template, whole or not at all."""

import importlib.resources
import pathlib
import re
import shutil

from tfx_perf.core import errors

_PLACEHOLDER = "{{PIPELINE_NAME}}"
# Valid in Airflow and ML Metadata; Kubeflow Pipelines accept fewer, see docs/quickstart.md.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")

PERF, PERF_ADDON = "perf", "perf_addon"
"""Folders: of a whole project, and of the files that `addon` adds to an existing one."""

TEMPLATES = {
    PERF: "the whole chain, from CSV files or TFRecords to a pushed model, on every orchestrator"
}
"""The description of each template, by its name."""
# A module of tfx-perf itself that is also copied into a project.
_PIPELINE = "training_pipeline.py"


def copy_project(
    template: str, *, pipeline_name: str, destination: pathlib.Path
) -> list[pathlib.Path]:
    """Writes a project of this name to a new or empty folder; returns its files, sorted."""
    if template not in TEMPLATES:
        raise errors.UserError(
            f"Expected one of the templates {', '.join(TEMPLATES)}. Received: model={template}. "
            "Components are added to a project that exists by `tfx-perf addon PROJECT`."
        )
    if not _NAME.fullmatch(pipeline_name):
        raise errors.UserError(
            "Expected a pipeline name of at most 63 letters, digits, - and _, the first a letter "
            f"or digit. Received: pipeline_name={pipeline_name}."
        )
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


def contents(folder: str, *, pipeline_name: str) -> dict[str, str]:
    """Returns the text of each file of `PERF` or `PERF_ADDON`, by its path in the project."""
    root = pathlib.Path(__file__).with_name(folder)
    sources = {
        str(path.relative_to(root)): path
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    if folder == PERF:
        package = importlib.resources.files("tfx_perf.pipelines")
        sources[f"pipeline/{_PIPELINE}"] = pathlib.Path(str(package / _PIPELINE))
    return {
        target: path.read_text(encoding="utf-8").replace(_PLACEHOLDER, pipeline_name)
        for target, path in sources.items()
    }
