"""Airflow with LocalExecutor, its database and ML Metadata on PostgreSQL."""

import database_servers
import light_components as light
import pytest
from airflow_home import AirflowHome
from ml_metadata.metadata_store import metadata_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_CREATE = """
import psycopg2
connection = psycopg2.connect({!r})
connection.autocommit = True
connection.cursor().execute("CREATE DATABASE airflow")
"""


def test_a_scheduled_run_with_nodes_side_by_side(airflow_2, tmp_path):
    with database_servers.postgresql() as (connection, url):
        database = url.replace("postgresql", "postgresql+psycopg2").replace("/mlmd", "/airflow")
        home = AirflowHome(
            tmp_path / "home", programs=airflow_2, database=database, executor="LocalExecutor"
        )
        home.folder.mkdir()
        home.run("python", "-c", _CREATE.format(url.replace("/mlmd", "/postgres")))
        run_id = light.scheduled(home.prepare(), connection=connection)
        assert home.ask("runs", "light") == {run_id: "success"}
        tasks = home.ask("tasks", "light", run_id)
        assert {name: task["state"] for name, task in tasks.items()} == light.STATES
        store = metadata_store.MetadataStore(connection)
        runs = store.get_contexts_by_type("pipeline_run")
        assert [run.name for run in runs] == [run_id]
