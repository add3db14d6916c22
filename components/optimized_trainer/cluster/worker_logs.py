"""What the workers' pods tell; they only explain, so that nothing depends on having them."""

import logging
import pathlib

from tfx_perf import errors, workers
from tfx_perf.components.optimized_trainer.cluster.job_api import JobApi
from tfx_perf.components.optimized_trainer.cluster.pod import Pod

_LINES = 10_000

_LOGGER = logging.getLogger(__name__)


def pods(api: JobApi, job_name: str) -> list[Pod]:
    """Returns a job's pods; none where they cannot be had."""
    try:
        return api.pods(job_name)
    except (errors.UserError, errors.MeasurementError) as error:
        _LOGGER.warning("The pods of %s cannot be listed. %s", job_name, error)
        return []


def keep(api: JobApi, job_name: str, *, folder: pathlib.Path) -> dict[str, str]:
    """Writes what the processes have said to files, `worker-0.log` and so on.

    Args:
        api: to the cluster.
        job_name: whose pods have not been deleted yet.
        folder: where the files go; made if it is not there.

    Returns:
        It, by the processes' names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    logs = {}
    for pod in pods(api, job_name):
        try:
            text = api.log(pod, line_count=_LINES)
        except (errors.UserError, errors.MeasurementError) as error:
            _LOGGER.warning("The log of %s cannot be read. %s", pod.name, error)
            continue
        logs[pod.task] = text
        (folder / workers.log_file(pod.task)).write_text(text, encoding="utf-8")
    return logs
