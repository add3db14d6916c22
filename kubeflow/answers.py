"""What a server answers."""

import dataclasses

_FINISHED = ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELED")


@dataclasses.dataclass(frozen=True)
class Created:
    """Something that was created on the server.

    Attributes:
        id: as the server knows it.
        name: as people know it.
        link: where the UI shows it.
    """

    id: str
    name: str
    link: str


@dataclasses.dataclass(frozen=True)
class RunState:
    """How a run stands.

    Attributes:
        state: e.g. `RUNNING`, `SUCCEEDED`, `FAILED`, `SKIPPED` or `CANCELED`.
        message: why, if the server says so.
        failed_tasks: names of the tasks that failed.
        link: where the UI shows it.
    """

    state: str
    message: str
    failed_tasks: tuple[str, ...]
    link: str

    @property
    def finished(self) -> bool:
        """Whether the run has come to an end."""
        return self.state in _FINISHED
