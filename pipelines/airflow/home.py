"""Finds the dags folder of the Airflow that is to run a pipeline, without importing Airflow."""

import configparser
import os
import pathlib

from tfx_perf import errors

_SQLITE = "sqlite:///"


def dags_folder(given: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Returns the folder that DAGs are deployed to.

    Args:
        given: a folder; None for that of the Airflow home, which AIRFLOW_HOME names, as its
            settings say.

    Raises:
        UserError: it does not exist or cannot be written, or the Airflow home is none yet.
    """
    if given is not None:
        return _writable(pathlib.Path(given))
    home = pathlib.Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    config = configparser.ConfigParser(interpolation=None, strict=False)
    config.read(home / "airflow.cfg")
    _check_database(home, config)
    own = home / "dags"
    setting = _setting(config, "core", "dags_folder")
    folder = pathlib.Path(os.path.expandvars(setting)).expanduser() if setting else own
    if folder == own:
        own.mkdir(exist_ok=True)  # Airflow writes it into its settings, and does not make it
    return _writable(folder)


def _check_database(home: pathlib.Path, config: configparser.ConfigParser) -> None:
    connection = _setting(config, "database", "sql_alchemy_conn") or (
        f"{_SQLITE}{home / 'airflow.db'}"
    )
    path = connection.removeprefix(_SQLITE)
    if path != connection and not pathlib.Path(path).is_file():
        raise errors.UserError(
            f"Expected an Airflow home with a database. Received: AIRFLOW_HOME={home}, and there "
            f"is no {path}; run `airflow db migrate` first, or name a dags folder."
        )


def _setting(config: configparser.ConfigParser, section: str, key: str) -> str | None:
    """Returns a setting of Airflow; a variable of the environment comes before the file."""
    variable = f"AIRFLOW__{section.upper()}__{key.upper()}"
    return os.environ.get(variable) or config.get(section, key, fallback=None) or None


def _writable(folder: pathlib.Path) -> pathlib.Path:
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise errors.UserError(
            f"Expected an existing folder that can be written. Received: dags_folder={folder}."
        )
    return folder.absolute()
