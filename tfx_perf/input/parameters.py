"""What a plan must know beside the candidate's name."""

from typing import ClassVar

from tfx_perf import records


class Parameters(records.Record):
    """Settings that candidates are made with; a plan carries them to whoever applies it.

    Attributes:
        service_address: dispatcher of a tf.data service, e.g. `grpc://host:5050`.
    """

    GONE: ClassVar[frozenset[str]] = frozenset(
        {"copy_folder", "copied_files", "copied_state", "copy_state"}
    )

    service_address: str | None = None
