"""Pod: what the pod of one process is doing."""

import dataclasses
from typing import Any

from tfx_perf.core import workers
from tfx_perf.distribute.kubernetes.job_kind import JobKind

_ENDED = ("Succeeded", "Failed")
# What a container exits with that is ended from outside: by SIGKILL and SIGTERM.
_SIGNALLED = (137, 143)


@dataclasses.dataclass(frozen=True)
class Pod:
    """The pod of a process that trains, or serves one that does.

    Attributes:
        task: of its process, e.g. `worker 0`.
        state: its phase, with the reason if its container waits or was ended by Kubernetes, e.g.
            `Pending (ImagePullBackOff)`.
        has_log: whether its container has been started.
        has_failed: whether it has ended with an error that does not come of its deletion.
        last_words: the end of its log, if that is known without reading it.
    """

    name: str
    uid: str
    task: str
    state: str
    has_log: bool
    has_ended: bool
    has_failed: bool
    last_words: str

    @classmethod
    def of(cls, item: Any, kind: JobKind) -> "Pod":
        """Returns the pod that a `V1Pod` describes."""
        phase, labels = item.status.phase or "Pending", item.metadata.labels or {}
        states = [each.state for each in item.status.container_statuses or () if each.state]
        ended = [state.terminated for state in states if state.terminated]
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
        # The operator deletes what still runs when another one has failed.
        follows = item.metadata.deletion_timestamp is not None and any(
            each.exit_code in _SIGNALLED for each in ended
        )
        return cls(
            name=item.metadata.name,
            uid=item.metadata.uid,
            task=workers.name_of(
                labels.get(kind.task_label, "worker"), int(labels.get(kind.index_label, 0))
            ),
            state=f"{phase} ({', '.join(reasons)})" if reasons else phase,
            has_log=phase in ("Running", *_ENDED),
            has_ended=phase in _ENDED,
            has_failed=phase == "Failed" and not follows,
            last_words="\n".join(each.message for each in ended if each.message),
        )
