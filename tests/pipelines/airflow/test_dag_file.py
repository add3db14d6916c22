"""What Airflow makes of a deployed DAG, in environments that have no TFX."""

import json
import pathlib
import subprocess
from typing import Any

import airflow_environment
import light_components as light
import pytest

from tfx_perf.pipelines.airflow import AirflowSettings, TaskSettings, deploy

# What Airflow reads, as JSON: the DAG bag's own figures, then every task's arguments.
_DESCRIBE = """
import json, sys, time
import airflow
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:
    from airflow.models.dagbag import DagBag
bag = DagBag(sys.argv[1], include_examples=False)
assert not bag.import_errors, bag.import_errors
forbidden = {"tensorflow", "tfx", "tfx_perf", "ml_metadata"} & set(sys.modules)
assert not forbidden, forbidden
(dag,) = bag.dags.values()
print(json.dumps({
    "dag_id": dag.dag_id,
    "seconds": bag.dagbag_stats[0].duration.total_seconds(),
    "tags": sorted(dag.tags),
    "catchup": dag.catchup,
    "max_active_runs": dag.max_active_runs,
    "start_date": dag.start_date.isoformat(),
    "timetable": dag.timetable.summary,
    "params": {name: [dag.params.get_param(name).schema, dag.params[name]] for name in dag.params
               if name != "unset"},
    "tasks": {task.task_id: {
        "type": type(task).__name__,
        "upstream": sorted(task.upstream_task_ids),
        "trigger_rule": str(getattr(task.trigger_rule, "value", task.trigger_rule)),
        "retries": task.retries,
        "retry_delay": task.retry_delay.total_seconds(),
        "timeout": task.execution_timeout and task.execution_timeout.total_seconds(),
        "pool": task.pool,
        "queue": task.queue,
        "priority": task.priority_weight,
        "image": getattr(task, "image", None),
        "skips": sorted(task.skip_on_exit_code),
        "variables": getattr(task, "env", None) or getattr(task, "environment", None)
            or {item.name: item.value for item in getattr(task, "env_vars", [])},
        "limits": str(getattr(task, "container_resources", None)),
        "memory": getattr(task, "mem_limit", None),
    } for task in dag.tasks},
}))
"""

_SETTINGS = AirflowSettings(
    schedule="0 3 * * *",
    start_date="2025-05-01",
    tags=("nightly",),
    parameters={"ratio": 0.5},
    default_args=TaskSettings(retries=2, retry_delay=30, pool="training"),
    nodes={"Always": TaskSettings(queue="gpu", retries=0, execution_timeout="PT1H",
                                  priority_weight=7, environment={"CUDA_VISIBLE_DEVICES": "0"})},
)  # fmt: skip


def _described(programs: pathlib.Path, folder: pathlib.Path, **settings: Any) -> dict[str, Any]:
    dags = folder / "dags"
    dags.mkdir()
    deploy(light.everything(folder), dags_folder=dags, settings=settings.pop("settings", settings))
    variables = {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [str(programs / "python"), "-c", _DESCRIBE, str(dags)], env=variables, check=False,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=["airflow_2", pytest.param("airflow_3", marks=pytest.mark.slow)])
def programs(request: pytest.FixtureRequest) -> pathlib.Path:
    """The programs of both lines of Airflow."""
    return request.getfixturevalue(request.param)


def test_the_dag_is_what_pipeline_and_settings_say(programs, tmp_path):
    dag = _described(programs, tmp_path, settings=_SETTINGS)
    assert dag["seconds"] < 1.0
    assert (dag["dag_id"], dag["timetable"], dag["tags"]) == ("light", "0 3 * * *", ["nightly"])
    assert dag["start_date"].startswith("2025-05-01T00:00:00")
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    schema, default = dag["params"]["ratio"]
    assert (schema["type"], default) == ("number", 0.5)
    schema, default = dag["params"]["pipeline-root"]
    assert (schema["type"], default) == ("string", str(tmp_path / "artifacts"))
    tasks = dag["tasks"]
    assert {name: task["upstream"] for name, task in tasks.items()} == {
        "Decide": [],
        "Never": ["Decide"],
        "AfterNever": ["Never"],
        "Always": ["Decide"],
        "Flaky": [],
        "Gate": ["Flaky"],
    }
    # Gate was only ordered after Flaky, and would run if that one was skipped.
    assert {name for name, task in tasks.items() if task["trigger_rule"] == "none_failed"} == {
        "Gate"
    }
    assert all(task["skips"] == [99] and task["pool"] == "training" for task in tasks.values())
    always, flaky = tasks["Always"], tasks["Flaky"]
    assert (flaky["retries"], flaky["retry_delay"], flaky["timeout"]) == (2, 30, None)
    assert (always["retries"], always["timeout"], always["queue"]) == (0, 3600, "gpu")
    assert always["priority"] == 7
    assert always["variables"]["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize(
    ("schedule", "summary"), [(None, ("None", "Never")), (90, ("0:01:30",)), ("@daily", None)]
)
def test_schedules(airflow_2, tmp_path, schedule, summary):
    dag = _described(airflow_2, tmp_path, schedule=schedule)
    assert summary is None or dag["timetable"].startswith(summary)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "arguments", "described"),
    [
        ("docker", {"mem_limit": "2g"}, {"type": "DockerOperator", "memory": "2g"}),
        (
            "kubernetes",
            {"namespace": "ml", "container_resources": {"limits": {"memory": "2Gi"}}},
            {"type": "KubernetesPodOperator", "limits": "{'limits': {'memory': '2Gi'}}"},
        ),
    ],
)
def test_containers(tmp_path, operator, arguments, described):
    programs = airflow_environment.environment(airflow_environment.AIRFLOW_2_PROVIDERS)
    dag = _described(
        programs,
        tmp_path,
        container={"operator": operator, "image": "registry/image:1"},
        default_args={"operator_arguments": arguments},
    )
    for task in dag["tasks"].values():
        assert (task["image"], task["skips"]) == ("registry/image:1", [99])
        assert described.items() <= task.items()
        assert task["variables"]["TFX_PERF_PIPELINE"].startswith("data:")
