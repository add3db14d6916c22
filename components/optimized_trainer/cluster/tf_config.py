"""Which worker a process is, by TensorFlow's own variable, which a TrainJob does not set."""

import json
from collections.abc import MutableMapping

from tfx_perf import errors
from tfx_perf.components.optimized_trainer.cluster.worker import Worker

# Of a TrainJob: `host:port` of all workers, with commas between.
HOSTS_VARIABLE = "TFX_PERF_WORKER_HOSTS"

_VARIABLE = "TF_CONFIG"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"  # set by Kubernetes in the pods of an indexed job


def worker_of(environment: MutableMapping[str, str]) -> Worker:
    """Returns which worker this process is; composes `TF_CONFIG` if it is not there.

    To be called before TensorFlow is imported.

    Args:
        environment: with `TF_CONFIG`, as the controller of a TFJob sets it, or with
            `TFX_PERF_WORKER_HOSTS` and `JOB_COMPLETION_INDEX`, as in the pods of a TrainJob.

    Raises:
        UserError: neither is there, or what is there makes no sense.
    """
    if _VARIABLE not in environment:
        environment[_VARIABLE] = json.dumps(_composed(environment))
    text = environment[_VARIABLE]
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        chiefs, workers = cluster.get("chief") or [], cluster.get("worker") or []
        kind, index = task["type"], int(task["index"])
        place = {"chief": index, "worker": len(chiefs) + index}[kind]
        if len({"chief": chiefs, "worker": workers}[kind]) <= index or index < 0:
            raise IndexError(f"no {kind} {index}")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise errors.UserError(
            f"Expected {_VARIABLE} with a cluster of chief and worker and a task of them. "
            f"Received: {_VARIABLE}={text} ({error})."
        ) from error
    return Worker(index=place, count=len(chiefs) + len(workers))


def _composed(environment: MutableMapping[str, str]) -> dict[str, object]:
    hosts = [host for host in environment.get(HOSTS_VARIABLE, "").split(",") if host]
    index = environment.get(_INDEX_VARIABLE, "")
    if not hosts:
        raise errors.UserError(
            f"Expected {_VARIABLE}, as a TFJob sets it, or {HOSTS_VARIABLE}. Received: neither. "
            "OptimizedTrainer starts this program in the workers of its job."
        )
    if not index.isdecimal() or int(index) >= len(hosts):
        raise errors.UserError(
            f"Expected {_INDEX_VARIABLE} below the number of hosts, {len(hosts)}. "
            f"Received: {_INDEX_VARIABLE}={index or None}."
        )
    return {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": int(index)}}
