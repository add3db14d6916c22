"""Describes the DAG in a folder as Airflow reads it; runs in Airflow's environment, prints JSON."""

import json
import sys

import airflow

try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 2
    from airflow.models.dagbag import DagBag


def main(folder):
    """Prints the DAG, and how long Airflow took to parse it."""
    DagBag(folder)  # Airflow's own processor, too, has imported the operators before
    bag = DagBag(folder)
    assert not bag.import_errors, bag.import_errors
    foreign = {"tensorflow", "tfx", "tfx_perf", "ml_metadata"} & set(sys.modules)
    assert not foreign, foreign
    (dag,) = bag.dags.values()
    described = {
        "dag_id": dag.dag_id,
        "seconds": bag.dagbag_stats[0].duration.total_seconds(),
        "tags": sorted(dag.tags),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "start_date": dag.start_date.isoformat(),
        "schedule": str(dag.schedule if airflow.__version__ >= "3" else dag.schedule_interval),
        "params": {
            name: [dag.params.get_param(name).schema, dag.params[name]] for name in dag.params
        },
        "tasks": {task.task_id: described_task(task) for task in dag.tasks},
    }
    print(json.dumps(described))


def described_task(task):
    """Returns the arguments of a task."""
    return {
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
        "variables": getattr(task, "env", None) or getattr(task, "environment", None),
        "memory": getattr(task, "mem_limit", None),
        "pod": described_pod(task),
    }


def described_pod(task):
    """Returns what Kubernetes would be asked for; None for other operators."""
    if not hasattr(task, "build_pod_request_obj"):
        return None
    from airflow.providers.cncf.kubernetes.operators.pod import convert_env_vars
    from kubernetes.client import ApiClient

    task.env_vars = convert_env_vars(task.env_vars)  # as `execute` does
    return ApiClient().sanitize_for_serialization(task.build_pod_request_obj(None))


if __name__ == "__main__":
    main(sys.argv[1])
