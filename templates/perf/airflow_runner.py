"""Deploys the pipeline to the Airflow in AIRFLOW_HOME; scheduled daily, paused at first."""

from tfx_perf.core import console

with console.libraries():  # TensorFlow and others log a lot while they are imported
    from tfx.orchestration import metadata

    from tfx_perf.pipelines import airflow

    from pipeline import configs, definition

# Retries, pools, timeouts, queues, per-node settings: see AirflowSettings.
SETTINGS = airflow.AirflowSettings(
    schedule="@daily",
    default_args=airflow.TaskSettings(retries=1),
    python_path=(str(configs.PROJECT),),
)


def main() -> None:
    """Compiles the pipeline into the dags folder; a second call updates it."""
    database = configs.OUTPUT / "metadata.sqlite"
    pipeline = definition.create(
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(database))
    )
    airflow.deploy(pipeline, settings=SETTINGS)


if __name__ == "__main__":
    with console.script():
        main()
