"""Which of several workers a process is, by TensorFlow's own variable."""

import dataclasses
import json
import os
from collections.abc import Sequence

from tfx_perf import errors

VARIABLE = "TF_CONFIG"


@dataclasses.dataclass(frozen=True)
class Worker:
    """One of the processes that train together.

    Attributes:
        index: from 0; the first one is TensorFlow's chief.
        count: how many there are.
    """

    index: int
    count: int

    @property
    def is_chief(self) -> bool:
        """Whether its model and its figures are the training's."""
        return self.index == 0


def worker_of(text: str) -> Worker:
    """Returns which worker a process is.

    Args:
        text: of `TF_CONFIG`, with a cluster of chief and worker.

    Raises:
        UserError: it makes no sense.
    """
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
            f"Expected {VARIABLE} with a cluster of chief and worker and a task of them. "
            f"Received: {VARIABLE}={text} ({error})."
        ) from error
    return Worker(index=place, count=len(chiefs) + len(workers))


def this() -> Worker:
    """Returns which worker this process is; without `TF_CONFIG` the only one."""
    try:
        return worker_of(os.environ.get(VARIABLE, ""))
    except errors.UserError:
        return Worker(index=0, count=1)


def config_of(worker: Worker, *, hosts: Sequence[str]) -> str:
    """Returns the text of `TF_CONFIG` for a worker.

    Args:
        worker: which one.
        hosts: `host:port` of all.
    """
    task = {"type": "worker", "index": worker.index}
    return json.dumps({"cluster": {"worker": list(hosts)}, "task": task})
