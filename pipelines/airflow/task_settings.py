"""How Airflow runs a task."""

from collections.abc import Mapping
from typing import Any

import pydantic

from tfx_perf.settings.section import Section
from tfx_perf.settings.values import Count, Duration, PositiveInt

_OF_OURS = {"environment", "operator_arguments"}


class TaskSettings(Section):
    """Airflow's own arguments of an operator; what is None is left to Airflow.

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
        queue: of the executor, e.g. for workers with a GPU.
        owner: as shown in the UI.
        depends_on_past: wait for the task's success in the run before.
        environment: environment variables for the node's process.
        operator_arguments: further arguments of the operator, of JSON types, e.g. `namespace` of
            KubernetesPodOperator or `mem_limit` of DockerOperator.

    Example:
        >>> TaskSettings(pool="gpu", retries=2, retry_delay=60, execution_timeout="PT4H")
    """

    retries: Count | None = None
    retry_delay: Duration | None = None
    retry_exponential_backoff: bool | None = None
    max_retry_delay: Duration | None = None
    execution_timeout: Duration | None = None
    pool: str | None = None
    pool_slots: PositiveInt | None = None
    priority_weight: PositiveInt | None = None
    queue: str | None = None
    owner: str | None = None
    depends_on_past: bool | None = None
    environment: Mapping[str, str] = pydantic.Field(default_factory=dict)
    operator_arguments: Mapping[str, pydantic.JsonValue] = pydantic.Field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Returns the operator's arguments that are set."""
        own = self.model_dump(exclude=_OF_OURS, exclude_none=True)
        return {**own, **self.operator_arguments}
