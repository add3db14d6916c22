"""Puts a pipeline into Airflow's dags folder without Airflow's code; imports TFX on demand."""

import configparser
import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from tfx_perf.core import errors
from tfx_perf.pipelines.airflow.settings import AirflowSettings

if TYPE_CHECKING:
    from tfx import v1 as tfx

_TOPOLOGY = "topology.json"
_SQLITE = "sqlite:///"


def deploy(
    pipeline: "tfx.dsl.Pipeline",
    *,
    dags_folder: str | os.PathLike[str] | None = None,
    settings: AirflowSettings | Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Deploys a pipeline to Airflow, or updates one that was deployed before.

    Everything is checked before a file is touched. The files are written under other names and then
    renamed, `dag.py` last, so that a scheduler never sees half a DAG.

    Args:
        pipeline: the same object as for any other runner. Its name becomes the DAG's id.
        dags_folder: None for the one in the settings of the Airflow home, see AIRFLOW_HOME.
        settings: settings of the DAG and its tasks.

    Returns:
        The DAG's folder, `<dags_folder>/<pipeline name>`.

    Raises:
        UserError: Airflow cannot run the pipeline, settings or interpreter are wrong, the
            dags folder cannot be used, or something else has the DAG's name there.
    """
    # TFX takes seconds to import; run_node imports this package, but does not need all of it.
    from tfx_perf.pipelines.airflow import topology

    settings = AirflowSettings.of(settings)
    _check_python(settings)
    ir = topology.compile_pipeline(pipeline)
    described = topology.topology_of(pipeline, ir, settings=settings)
    folder = find_dags_folder(dags_folder) / ir.pipeline_info.id
    _check_free(folder, schema=topology.SCHEMA)
    _write(
        folder,
        {
            "pipeline.json": topology.pipeline_as_json(ir),
            _TOPOLOGY: topology.topology_as_json(described),
            "dag.py": resources.files(__package__).joinpath("dag.py").read_text("utf-8"),
        },
    )
    return folder


def _check_python(settings: AirflowSettings) -> None:
    if settings.python is None or settings.container:
        return
    if not (os.path.isabs(settings.python) and os.access(settings.python, os.X_OK)):
        raise errors.UserError(
            "Expected the absolute path of the Python of TFX's environment. "
            f"Received: python={settings.python}."
        )


def _check_free(folder: pathlib.Path, *, schema: str) -> None:
    """Checks that nothing else has the name, only an earlier deployment of ours."""
    if not os.path.lexists(folder) and not os.path.lexists(folder.with_name(folder.name + ".py")):
        return
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads((folder / _TOPOLOGY).read_text("utf-8"))["schema"] == schema:
            return
    raise errors.UserError(
        "Expected a pipeline name that nothing else has in the dags folder. "
        f"Received: {folder} or {folder.name}.py, which was not deployed by tfx-perf; rename the "
        "pipeline or remove it."
    )


def _write(folder: pathlib.Path, texts: Mapping[str, str]) -> None:
    """Writes files so that each is complete at any time; a new folder stays only if complete."""
    is_new = not folder.exists()
    drafts = {name: folder / f".{name}.draft" for name in texts}
    try:
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            drafts[name].write_text(text, encoding="utf-8")
        for name, draft in drafts.items():
            draft.replace(folder / name)
    except OSError as error:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
        raise errors.UserError(
            f"Expected a dags folder that can be written. Received: folder={folder} ({error})."
        ) from error


def find_dags_folder(given: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Returns the folder for DAGs, by default the one in the settings of the Airflow home."""
    if given is not None:
        return _writable(pathlib.Path(given))
    home = pathlib.Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    config = configparser.ConfigParser(interpolation=None, strict=False)
    config.read(home / "airflow.cfg")
    _check_database(home, config)
    default = home / "dags"
    setting = _setting(config, "core", "dags_folder")
    folder = pathlib.Path(os.path.expandvars(setting)).expanduser() if setting else default
    if folder == default and home.is_dir():
        default.mkdir(exist_ok=True)  # Airflow writes it into its settings, but does not create it
    return _writable(folder)


def _check_database(home: pathlib.Path, config: configparser.ConfigParser) -> None:
    default = f"{_SQLITE}{home / 'airflow.db'}"
    connection = _setting(config, "database", "sql_alchemy_conn") or default
    path = connection.removeprefix(_SQLITE).partition("?")[0]
    if connection.startswith(_SQLITE) and not pathlib.Path(path).is_file():
        raise errors.UserError(
            f"Expected an Airflow home with a database. Received: AIRFLOW_HOME={home}, and there "
            f"is no {path}; run `airflow db migrate` first, or name a dags folder."
        )


def _setting(config: configparser.ConfigParser, section: str, key: str) -> str | None:
    variable = f"AIRFLOW__{section.upper()}__{key.upper()}"
    return os.environ.get(variable) or config.get(section, key, fallback=None) or None


def _writable(folder: pathlib.Path) -> pathlib.Path:
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise errors.UserError(
            f"Expected an existing folder that can be written. Received: dags_folder={folder}."
        )
    return folder.absolute()
