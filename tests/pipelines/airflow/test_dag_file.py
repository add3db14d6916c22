"""What Airflow makes of a deployed DAG (`dag`), in environments that have no TFX.

It is built from a `topology`: the pipeline's, with `airflow.settings`.
"""

import json
import pathlib
from typing import Any

import airflow_environment
import light_components as light
import pytest

from tests import processes
from tfx_perf.pipelines.airflow import AirflowSettings, TaskSettings, deploy

_DESCRIBE = pathlib.Path(__file__).with_name("describe_dag.py")
# A pod cannot be described without it, although no connection is made.
_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
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
    (folder / "kubeconfig").write_text(_KUBECONFIG)
    variables = {
        "KUBECONFIG": str(folder / "kubeconfig"),
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PATH": "/usr/bin:/bin",
    }
    done = processes.run(programs / "python", _DESCRIBE, dags, env=variables, timeout=300)
    return json.loads(processes.last_line(done))


@pytest.fixture(params=["airflow_2", pytest.param("airflow_3", marks=pytest.mark.slow)])
def programs(request: pytest.FixtureRequest) -> pathlib.Path:
    """The programs of both lines of Airflow."""
    return request.getfixturevalue(request.param)


def test_the_dag_follows_pipeline_and_settings(programs, tmp_path):
    dag = _described(programs, tmp_path, settings=_SETTINGS)
    assert dag["seconds"] < 5.0  # Airflow gives up after 30
    assert (dag["dag_id"], dag["schedule"], dag["tags"]) == ("light", "0 3 * * *", ["nightly"])
    assert dag["start_date"].startswith("2025-05-01T00:00:00")
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    schema, default = dag["params"]["ratio"]
    assert (schema["type"], default) == ("number", 0.5)
    schema, default = dag["params"]["pipeline-root"]
    assert (schema["type"], default) == ("string", str(tmp_path / "artifacts"))
    tasks = dag["tasks"]
    upstream = {"Never": ["Decide"], "AfterNever": ["Never"], "Always": ["Decide"]}
    upstream |= {"Decide": [], "Gate": ["Decide"]}
    assert {name: task["upstream"] for name, task in tasks.items()} == upstream
    # Whatever comes after a skipped node is skipped: a gate that did not run lets nothing through.
    assert {task["trigger_rule"] for task in tasks.values()} == {"all_success"}
    assert all(task["skips"] == [99] and task["pool"] == "training" for task in tasks.values())
    always, gate = tasks["Always"], tasks["Gate"]
    assert (gate["retries"], gate["retry_delay"], gate["timeout"]) == (2, 30, None)
    assert (always["retries"], always["timeout"], always["queue"]) == (0, 3600, "gpu")
    assert always["priority"] == 7
    assert always["variables"]["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("schedule", "shown"), [(None, "None"), (90, "0:01:30"), ("@daily", "@daily")]
)
def test_schedules(airflow_2, tmp_path, schedule, shown):
    dag = _described(airflow_2, tmp_path, schedule=schedule)
    assert dag["schedule"] == shown


@pytest.fixture(scope="module")
def with_providers() -> pathlib.Path:
    """The programs of an Airflow 2 that has Docker and Kubernetes operators."""
    return airflow_environment.environment(airflow_environment.AIRFLOW_2_PROVIDERS)


@pytest.mark.slow
def test_docker(with_providers, tmp_path):
    dag = _described(
        with_providers,
        tmp_path,
        container={"operator": "docker", "image": "registry/image:1"},
        nodes={"Gate": {"operator_arguments": {"mem_limit": "2g"}}},
    )
    assert [task["memory"] for name, task in dag["tasks"].items() if name == "Gate"] == ["2g"]
    for task in dag["tasks"].values():
        assert (task["type"], task["image"]) == ("DockerOperator", "registry/image:1")
        assert task["skips"] == [99]
        assert task["variables"]["TFX_PERF_PIPELINE"].startswith("data:")


@pytest.mark.slow
def test_kubernetes(with_providers, tmp_path):
    resources = {"limits": {"nvidia.com/gpu": 1}}
    own = {"container_resources": resources, "node_selector": {"pool": "gpu"}}
    dag = _described(
        with_providers,
        tmp_path,
        container={"operator": "kubernetes", "image": "registry/image:1"},
        default_args={"operator_arguments": {"namespace": "ml"}},
        nodes={"Gate": {"operator_arguments": own}},
    )
    for name, task in dag["tasks"].items():
        assert (task["type"], task["skips"]) == ("KubernetesPodOperator", [99])
        assert task["pod"]["metadata"]["namespace"] == "ml"
        spec = task["pod"]["spec"]
        (container,) = spec["containers"]
        assert container["image"] == "registry/image:1"
        assert [*container["command"], *container["args"]] == [
            "python", "-m", "tfx_perf.pipelines.airflow.run_node",
        ]  # fmt: skip
        variables = {item["name"]: item["value"] for item in container["env"]}
        assert variables["TFX_PERF_NODE"] == name
        assert variables["TFX_PERF_PIPELINE"].startswith("data:")
        assert container.get("resources") == (resources if name == "Gate" else None)
        assert spec["nodeSelector"] == ({"pool": "gpu"} if name == "Gate" else {})
