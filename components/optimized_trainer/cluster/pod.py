"""Pod: what the pod of one process is doing."""

import dataclasses
from typing import Any

from tfx_perf import workers
from tfx_perf.components.optimized_trainer.cluster.job_kind import JobKind


@dataclasses.dataclass(frozen=True)
class Pod:
    """The pod of a process that trains, or serves one that does.

    Attributes:
        name: of the pod.
        task: what its process is, e.g. `worker 0`.
        state: its phase, with the reason if its container waits or was ended by Kubernetes, e.g.
            `Pending (ImagePullBackOff)`.
        has_failed: whether it has ended with an error.
    """

    name: str
    task: str
    state: str
    has_failed: bool

    @classmethod
    def of(cls, item: Any, kind: JobKind) -> "Pod":
        """Returns what the API says.

        Args:
            item: a `V1Pod`.
            kind: of its job.
        """
        phase, labels = item.status.phase or "Pending", item.metadata.labels or {}
        states = [each.state for each in item.status.container_statuses or () if each.state]
        reasons = [
            part.reason
            for state in states
            for part in (state.waiting, state.terminated)
            if part and part.reason
        ]
        # Of one that no machine has room for.
        reasons += [
            each.reason
            for each in item.status.conditions or ()
            if each.type == "PodScheduled" and each.status == "False" and each.reason
        ]
        return cls(
            name=item.metadata.name,
            task=workers.name_of(
                labels.get(kind.task_label, "worker"), int(labels.get(kind.index_label, 0))
            ),
            state=f"{phase} ({', '.join(reasons)})" if reasons else phase,
            has_failed=phase == "Failed",
        )
