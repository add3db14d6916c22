"""A run in Airflow 3, which cannot be installed beside TFX; TFX stays where it is."""

import pathlib
import re

import light_components as light
import pytest
from airflow_home import AirflowHome

from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.pipelines.airflow import deploy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_a_run_in_airflow_3(airflow_3, tmp_path):
    home = AirflowHome(tmp_path / "home", programs=airflow_3, executor="LocalExecutor").prepare()
    (home.folder / "marker").touch()  # `dags test` makes no retries
    deploy(
        light.everything(home.folder),
        dags_folder=home.dags,
        settings={"python_path": [str(pathlib.Path(__file__).parent)]},
    )
    output = home.run(
        "airflow", "dags", "test", "light", "2026-01-01", "-c", '{"ratio": 2.5}',
        timeout_seconds=600.0,
    )  # fmt: skip
    assert eval((home.folder / "log.txt").read_text()) == (light.JINJA, 3, 2.5)
    assert re.search(r"note: REFUSED: 4% slower", output)
    (run,) = recorded_runs.read_runs(home.folder / "metadata" / "metadata.sqlite")
    assert run.state == "complete"
