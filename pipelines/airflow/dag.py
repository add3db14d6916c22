"""The Airflow DAG of a TFX pipeline, which the file topology.json beside it describes.

Written by `tfx-perf airflow deploy`, which also updates it. It needs only Airflow.
"""

import datetime
import json
import pathlib

try:  # Airflow 3
    from airflow.providers.standard.operators.bash import BashOperator
    from airflow.sdk import DAG, Param
except ImportError:
    from airflow import DAG
    from airflow.models.param import Param
    from airflow.operators.bash import BashOperator

FOLDER = pathlib.Path(__file__).absolute().parent
MODULE = "tfx_perf.pipelines.airflow.run_node"
SKIPPED = 99
NOTE = "note: "


def decode(value):
    """Turns the JSON form of a duration into a `timedelta`."""
    if value.keys() == {"duration_seconds"}:
        return datetime.timedelta(seconds=value["duration_seconds"])
    return value


def show_note(context, result):
    """Shows the node's last line as a note of the task instance."""
    if not isinstance(result, str) or not result.startswith(NOTE):
        return
    try:
        from airflow.models import TaskInstance
        from airflow.utils.session import create_session

        key = context["ti"].key.primary
        with create_session() as session:
            session.get(TaskInstance, key).note = result[len(NOTE) :][:1000]
    except Exception as error:  # Airflow 3 does not let tasks access its database
        print(f"The note stays in the log and in XCom: {error!r}")


def make_task(topology, node):
    """Returns the task of a node: a process or a container with TFX's environment."""
    environment = {
        "TFX_PERF_PIPELINE": node.get("pipeline", str(FOLDER / "pipeline.json")),
        "TFX_PERF_NODE": node["id"],
        "TFX_PERF_RUN_ID": "{{ run_id }}",
        "TFX_PERF_PARAMETERS": "{{ params | tojson }}",
        **node["environment"],
    }
    arguments = {
        "task_id": node["id"],
        "skip_on_exit_code": SKIPPED,
        "post_execute": show_note,
        **node["arguments"],
    }
    python, container = topology["python"], topology["container"]
    if not container:
        environment["TFX_PERF_PYTHON"] = python
        command = f'exec "$TFX_PERF_PYTHON" -m {MODULE}'
        return BashOperator(bash_command=command, env=environment, append_env=True, **arguments)
    arguments["image"] = container["image"]
    if container["operator"] == "docker":
        from airflow.providers.docker.operators.docker import DockerOperator

        arguments = {"mount_tmp_dir": False, "auto_remove": "success", **arguments}
        return DockerOperator(command=[python, "-m", MODULE], environment=environment, **arguments)
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    return KubernetesPodOperator(
        cmds=[python], arguments=["-m", MODULE], env_vars=environment, **arguments
    )


def make_dag(topology):
    """Returns the DAG."""
    settings = dict(topology["dag"])
    settings["start_date"] = datetime.datetime.fromisoformat(settings["start_date"])
    parameters = {
        item["name"]: Param(
            **({} if item["default"] is None else {"default": item["default"]}),
            type=item["type"],
            description=item["description"],
        )
        for item in topology["parameters"]
    }
    with DAG(**settings, default_args=topology["default_args"], params=parameters) as made:
        tasks = {node["id"]: make_task(topology, node) for node in topology["nodes"]}
        for node in topology["nodes"]:
            for upstream in node["upstream"]:
                tasks[upstream] >> tasks[node["id"]]
    return made


dag = make_dag(json.loads((FOLDER / "topology.json").read_text("utf-8"), object_hook=decode))
