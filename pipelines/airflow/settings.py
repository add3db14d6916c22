"""How Airflow runs a pipeline: the DAG, its tasks, and the containers that they may run in."""

import datetime
from collections.abc import Mapping
from typing import Any, Literal

import pydantic

from tfx_perf.config import base

_PRESETS = ("@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly",
            "@yearly")  # fmt: skip

# Settings for which Airflow's operator, or its DAG, has no argument.
_OWN_FIELDS = {"environment", "operator_arguments"}
_NO_DAG_ARGUMENTS = {"parameters", "default_args", "nodes", "python", "python_path", "container"}


class TaskSettings(base.Section):
    """Airflow's own arguments of an operator; those that are None are left to Airflow.

    Durations are `datetime.timedelta`, seconds, or ISO 8601 such as `PT5M`.

    Attributes:
        retries: how often a failed task is tried again.
        retry_delay: wait before the next try.
        retry_exponential_backoff: double the wait with each try.
        max_retry_delay: its upper bound.
        execution_timeout: a task that runs longer is ended and fails.
        pool: Airflow pool, which must exist.
        pool_slots: slots that the task takes there.
        priority_weight: which of several waiting tasks goes first.
        queue: queue of Airflow's executor, e.g. for workers with a GPU.
        owner: as shown in the UI.
        depends_on_past: wait for the task's success in the previous run.
        environment: environment variables for the node's process.
        operator_arguments: further arguments of the operator, of JSON types, e.g. `namespace` of
            KubernetesPodOperator or `mem_limit` of DockerOperator.

    Example:
        >>> TaskSettings(pool="gpu", retries=2, retry_delay=60, execution_timeout="PT4H")
    """

    retries: base.Count | None = None
    retry_delay: base.Duration | None = None
    retry_exponential_backoff: bool | None = None
    max_retry_delay: base.Duration | None = None
    execution_timeout: base.Duration | None = None
    pool: str | None = None
    pool_slots: base.PositiveInt | None = None
    priority_weight: base.PositiveInt | None = None
    queue: str | None = None
    owner: str | None = None
    depends_on_past: bool | None = None
    environment: Mapping[str, str] = pydantic.Field(default_factory=dict)
    operator_arguments: Mapping[str, pydantic.JsonValue] = pydantic.Field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Returns the operator's arguments that are set."""
        set_here = self.model_dump(exclude=_OWN_FIELDS, exclude_none=True)
        return {**set_here, **self.operator_arguments}


class ContainerSettings(base.Section):
    """Runs each node in its own container instead of a process of the Airflow worker.

    The image holds TFX, tfx_perf and the pipeline's own code; the node's part of the
    pipeline comes with the task. Artifacts and ML Metadata must be reachable from the container.

    Attributes:
        operator: `kubernetes` for KubernetesPodOperator, `docker` for DockerOperator; its
            provider package must be installed beside Airflow. Arguments such as `namespace`,
            `container_resources`, `node_selector` or `mounts` go into
            `TaskSettings.operator_arguments`.
        image: name of the image.
    """

    operator: Literal["kubernetes", "docker"]
    image: base.NotEmpty


class AirflowSettings(base.Settings):
    """Everything about the DAG that is not in the pipeline; every key is optional.

    Attributes:
        schedule: cron expression, a preset such as `@daily`, or a duration between runs; None
            for runs that are triggered.
        start_date: start of the schedule; without a zone it is UTC.
        catchup: run also the intervals between `start_date` and now.
        max_active_runs: how many runs may be active at the same time. More than one disturb each
            other's measurements.
        dagrun_timeout: a run that lasts longer fails.
        tags: to find the DAG by.
        description: shown in the UI.
        is_paused_upon_creation: None for Airflow's own setting.
        parameters: new defaults for the pipeline's runtime parameters, by name.
        default_args: settings of every task.
        nodes: settings of single tasks, by node id; they override `default_args`.
        python: interpreter of the environment with TFX and tfx_perf; None for the one that
            deploys, or for `python` in a container.
        python_path: folders that the pipeline's own modules are imported from.
        container: run the nodes in containers; None for processes of the Airflow worker.

    Example:
        >>> AirflowSettings(
        ...     schedule="@daily",
        ...     default_args=TaskSettings(retries=1, pool="training"),
        ...     nodes={"OptimizedTrainer": TaskSettings(queue="gpu", execution_timeout="PT4H")},
        ... )
    """

    schedule: str | base.Duration | None = None
    start_date: base.Time = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    catchup: bool = False
    max_active_runs: base.PositiveInt = 1
    dagrun_timeout: base.Duration | None = None
    tags: base.Several[str] = ("tfx",)
    description: str | None = None
    is_paused_upon_creation: bool | None = None
    parameters: Mapping[str, int | float | str] = pydantic.Field(default_factory=dict)
    default_args: TaskSettings = TaskSettings()
    nodes: Mapping[str, TaskSettings] = pydantic.Field(default_factory=dict)
    python: base.PathText | None = None
    python_path: base.Several[base.PathText] = ()
    container: ContainerSettings | None = None

    @pydantic.field_validator("schedule")
    @classmethod
    def _is_a_schedule(cls, schedule: Any) -> Any:
        if isinstance(schedule, str) and schedule not in _PRESETS:
            fields = schedule.split()
            if len(fields) not in (5, 6) or schedule.startswith("@"):
                raise ValueError(
                    f"a cron expression of five fields, one of {', '.join(_PRESETS)}, or a "
                    "duration in seconds"
                )
        return schedule

    @pydantic.field_validator("start_date")
    @classmethod
    def _has_a_zone(cls, start_date: datetime.datetime) -> datetime.datetime:
        return start_date if start_date.tzinfo else start_date.replace(tzinfo=datetime.timezone.utc)

    def dag_arguments(self) -> dict[str, Any]:
        """Returns Airflow's arguments of the DAG that are set, except parameters and tasks."""
        given = self.model_dump(exclude=_NO_DAG_ARGUMENTS, exclude_none=True)
        # Without the argument `schedule`, Airflow 2 would run the DAG daily.
        return {**given, "schedule": self.schedule}
