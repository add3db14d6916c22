"""Which worker a process of a job is: a TrainJob does not set TensorFlow's own variable."""

from collections.abc import MutableMapping

from tfx_perf.core import errors, workers

# Of a TrainJob: `host:port` of all workers, with commas between.
HOSTS_VARIABLE = "TFX_PERF_WORKER_HOSTS"

_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"  # set by Kubernetes in the pods of an indexed job


def worker_of(environment: MutableMapping[str, str]) -> workers.Worker:
    """Returns which worker this process is; composes a TrainJob's `TF_CONFIG` from its variables.

    To be called before TensorFlow is imported.
    """
    if workers.VARIABLE not in environment:
        environment[workers.VARIABLE] = _composed(environment)
    return workers.worker_of(environment[workers.VARIABLE])


def _composed(environment: MutableMapping[str, str]) -> str:
    hosts = [host for host in environment.get(HOSTS_VARIABLE, "").split(",") if host]
    index = environment.get(_INDEX_VARIABLE, "")
    if not hosts:
        raise errors.UserError(
            f"Expected {workers.VARIABLE}, as a TFJob sets it, or {HOSTS_VARIABLE}. Received: "
            "neither. OptimizedTrainer starts this program in the workers of its job."
        )
    if not index.isdecimal() or int(index) >= len(hosts):
        raise errors.UserError(
            f"Expected {_INDEX_VARIABLE} below the number of hosts, {len(hosts)}. "
            f"Received: {_INDEX_VARIABLE}={index or None}."
        )
    return workers.config_of(workers.Worker(int(index), len(hosts)), hosts=hosts)
