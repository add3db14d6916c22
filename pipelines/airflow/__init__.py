"""Runs a TFX pipeline on Airflow, one task per node; Airflow may be in another environment.

`deploy` compiles a pipeline into a folder of Airflow's dags folder: `pipeline.json` (TFX's
intermediate representation), `topology.json` (what `dag.py` reads) and `dag.py`, which imports
neither TFX nor TensorFlow nor tfx_perf. Each task starts `run_node` with the interpreter of the TFX
environment.
"""

from tfx_perf.pipelines.airflow.deployment import deploy
from tfx_perf.pipelines.airflow.settings import AirflowSettings, ContainerSettings, TaskSettings

__all__ = ["AirflowSettings", "ContainerSettings", "TaskSettings", "deploy"]
