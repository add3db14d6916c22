"""Airflow with LocalExecutor, its database and ML Metadata on PostgreSQL."""

import pathlib

import database_servers
import light_components as light
import pytest
from airflow_home import AirflowHome
from ml_metadata.metadata_store import metadata_store

from tfx_perf.pipelines.airflow import deploy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_a_scheduled_run_with_nodes_side_by_side(airflow_2, tmp_path):
    with database_servers.postgresql() as (connection, url):
        create = (
            "import psycopg2\n"
            f"connection = psycopg2.connect({url.replace('/mlmd', '/postgres')!r})\n"
            "connection.autocommit = True\n"
            "connection.cursor().execute('CREATE DATABASE airflow')\n"
        )
        home = AirflowHome(
            tmp_path / "home",
            programs=airflow_2,
            database=url.replace("postgresql", "postgresql+psycopg2", 1).replace(
                "/mlmd", "/airflow"
            ),
            executor="LocalExecutor",
        )
        home.folder.mkdir()
        home.run("python", "-c", create)
        home.prepare()
        deploy(
            light.everything(home.folder, connection=connection),
            dags_folder=home.dags,
            settings={
                "schedule": 3600,
                "python_path": [str(pathlib.Path(__file__).parent)],
                "default_args": {"retries": 1, "retry_delay": 1},
            },
        )
        with home.serving("scheduler", "--skip-serve-logs"):
            run_id = home.wait_for_run("light")
        assert home.ask("runs", "light") == {run_id: "success"}
        tasks = home.ask("tasks", "light", run_id)
        assert {name: task["state"] for name, task in tasks.items()} == {
            "Decide": "success",
            "Never": "skipped",
            "AfterNever": "skipped",
            "Always": "success",
            "Gate": "success",
        }
        store = metadata_store.MetadataStore(connection)
        runs = store.get_contexts_by_type("pipeline_run")
        assert [run.name for run in runs] == [run_id]
