"""Airflow, in environments without TFX."""

import pathlib

import airflow_environment
import pytest
from airflow_home import AirflowHome


@pytest.fixture(scope="session")
def airflow_2() -> pathlib.Path:
    """The programs of Airflow 2."""
    return airflow_environment.environment(airflow_environment.AIRFLOW_2)


@pytest.fixture(scope="session")
def airflow_3() -> pathlib.Path:
    """The programs of Airflow 3."""
    return airflow_environment.environment(airflow_environment.AIRFLOW_3)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, airflow_2: pathlib.Path) -> AirflowHome:
    """An Airflow 2 with SQLite and SequentialExecutor."""
    return AirflowHome(tmp_path_factory.mktemp("home"), programs=airflow_2).prepare()
