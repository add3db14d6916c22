"""Asks Airflow's database; runs in Airflow's environment and prints JSON.

`python airflow_queries.py runs DAG`, `tasks DAG RUN_ID`, `wait DAG NUMBER SECONDS`.
"""

import json
import sys
import time

from airflow.models import DagRun, TaskInstance
from airflow.utils.session import create_session

_OVER = ("success", "failed")


def runs(dag):
    """Returns the states of a DAG's runs by run id, oldest first."""
    with create_session() as session:
        found = session.query(DagRun).filter(DagRun.dag_id == dag).order_by(DagRun.id)
        return {run.run_id: run.state for run in found}


def tasks(dag, run_id):
    """Returns state, try number, note and duration in seconds of a run's tasks."""
    with create_session() as session:
        found = session.query(TaskInstance).filter(
            TaskInstance.dag_id == dag, TaskInstance.run_id == run_id
        )
        return {
            task.task_id: {
                "state": task.state,
                "try": task.try_number,
                "note": task.note,
                "seconds": task.duration,
            }
            for task in found
        }


def wait(dag, number, seconds):
    """Returns the id of the run that is over as the `number`th; None if it takes too long."""
    deadline = time.monotonic() + float(seconds)
    while time.monotonic() < deadline:
        over = [run_id for run_id, state in runs(dag).items() if state in _OVER]
        if len(over) >= int(number):
            return over[int(number) - 1]
        time.sleep(1)
    return None


if __name__ == "__main__":
    function, *arguments = sys.argv[1:]
    print(json.dumps({"runs": runs, "tasks": tasks, "wait": wait}[function](*arguments)))
