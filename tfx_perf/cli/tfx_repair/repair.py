"""Replaces TFX's own parts with the repaired ones, in this process only."""

import importlib
import importlib.util
import pathlib
import shutil
import types
from importlib import metadata
from typing import Any

import click
import tensorflow as tf
from tfx.dsl.io import fileio
from tfx.tools.cli import handler, labels
from tfx.tools.cli.handler import base_handler, handler_factory, template_handler

from tfx_perf.core import errors
from tfx_perf.templates import copying

_ENGINES = ("airflow", "auto", "beam", "kubeflow", "local", "vertex")

_create_handler = handler_factory.create_handler
_copy_template = template_handler.copy_template
_list_template = template_handler.list_template


def repair() -> None:
    """Repairs TFX's command line; all other parts stay TFX's."""
    # TFX runs the first `pip` on PATH. If the environment has none, like one made by uv, that is
    # another Python's, which knows neither Airflow nor Kubeflow Pipelines.
    handler_factory.subprocess = types.SimpleNamespace(
        check_output=lambda command: "\n".join(package_names()).encode()
    )
    handler_factory.pip_utils = types.SimpleNamespace(get_package_names=package_names)
    handler_factory.create_handler = _checked_handler
    template_handler.list_template = _all_templates
    template_handler.copy_template = _copy_any_template


def package_names() -> list[str]:
    """Returns the names of the installed distributions, with Airflow if its command is on PATH."""
    names = {item.metadata["Name"] for item in metadata.distributions() if item.metadata["Name"]}
    if shutil.which("airflow"):
        names.add("apache-airflow")
    return sorted(names)


def _checked_handler(flags_dict: dict[str, Any]) -> base_handler.BaseHandler:
    """Returns TFX's handler of the engine, after checks; makes the path that TFX keeps absolute."""
    engine = flags_dict[labels.ENGINE_FLAG]
    if engine not in _ENGINES:
        raise errors.UserError(
            f"Expected one of the engines {', '.join(_ENGINES)}. Received: engine={engine}."
        )
    path = flags_dict.get(labels.PIPELINE_DSL_PATH)
    if path is not None:
        if not fileio.exists(path) or fileio.isdir(path):
            raise errors.UserError(
                "Expected a Python file that runs a pipeline. "
                f"Received: pipeline_path={path}, and there is none."
            )
        if "://" not in path:
            flags_dict[labels.PIPELINE_DSL_PATH] = str(pathlib.Path(path).absolute())
    has_kfp = importlib.util.find_spec("kfp") is not None  # otherwise TFX reports it as missing
    for name in ("airflow", "kubeflow"):
        if engine in (name, "auto") and (name != "kubeflow" or has_kfp):
            # TFX's factory then takes it from the package.
            ours = importlib.import_module(f"{__package__}.{name}")
            setattr(handler, f"{name}_handler", ours)
    if engine == "airflow":  # only runs need an installed Airflow
        return handler.airflow_handler.AirflowHandler(flags_dict)
    return _create_handler(flags_dict)


def _all_templates() -> list[str]:
    return [*_list_template(), *copying.TEMPLATES]


def _copy_any_template(flags_dict: dict[str, Any]) -> None:
    name = flags_dict[labels.MODEL]
    if name in _list_template():
        try:
            _copy_template(flags_dict)
        except tf.errors.AlreadyExistsError as error:
            raise errors.UserError(
                "Expected a folder that is empty or does not exist. Received: "
                f"destination_path={flags_dict[labels.DESTINATION_PATH]}, with files of that name."
            ) from error
        return
    if name not in copying.TEMPLATES:
        raise errors.UserError(
            f"Expected one of the templates {', '.join(_all_templates())}. Received: model={name}."
        )
    destination = pathlib.Path(flags_dict[labels.DESTINATION_PATH])
    for path in copying.copy_project(
        name, pipeline_name=flags_dict[labels.PIPELINE_NAME], destination=destination
    ):
        click.echo(f"{path.name} -> {path}")  # as TFX says it
