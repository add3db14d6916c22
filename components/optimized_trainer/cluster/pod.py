"""Pod: what one worker's pod is doing."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Pod:
    """A worker's pod.

    Attributes:
        name: of the pod.
        worker: the worker's index.
        state: its phase, with the reason if its container waits or was ended by Kubernetes, e.g.
            `Pending (ImagePullBackOff)`.
        has_failed: whether it has ended with an error.
    """

    name: str
    worker: int
    state: str
    has_failed: bool

    @classmethod
    def of(cls, item: Any, *, index_label: str) -> "Pod":
        """Returns what the API says.

        Args:
            item: a `V1Pod`.
            index_label: the label with the worker's index.
        """
        phase = item.status.phase or "Pending"
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
            worker=int((item.metadata.labels or {}).get(index_label, 0)),
            state=f"{phase} ({', '.join(reasons)})" if reasons else phase,
            has_failed=phase == "Failed",
        )
