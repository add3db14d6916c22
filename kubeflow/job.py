"""What is to be run on a server."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Job:
    """A pipeline on the server, and how to run it.

    Attributes:
        pipeline: its name.
        version: name of the version; None for the newest.
        name: of the run or the schedule; None for the pipeline's, with the time.
        parameters: of the run; text is converted to the declared types.
        pipeline_root: where the artifacts go; None as the pipeline or the server says.
        experiment: is created if it is not there.
        service_account: that the pods run as.
    """

    pipeline: str
    version: str | None = None
    name: str | None = None
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pipeline_root: str | None = None
    experiment: str = "Default"
    service_account: str | None = None
