"""WorkerFailure: why a worker of a job ended."""

from typing import ClassVar

from tfx_perf import records


class WorkerFailure(records.Record):
    """What a worker leaves when it cannot go on.

    Attributes:
        worker: its index.
        seconds: when, since 1970.
        message: one line.
        is_users: whether the message is that of a `UserError`.
        may_pass: whether it need not come again where all are started again; see `team.may_pass`.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.worker_failure/1"

    worker: int
    seconds: float
    message: str
    is_users: bool
    may_pass: bool
