"""What a plan must know beside the candidate's name."""

from tfx_perf import records


class Parameters(records.Record):
    """Settings that candidates are made with; a plan carries them to whoever applies it.

    Attributes:
        service_address: dispatcher of a tf.data service, e.g. `grpc://host:5050`.
        copy_folder: folder with an uncompressed copy of the split.
        copied_files: the files that were copied; the copy serves no others.
        copied_state: `file_state.digest` of what they were then. Empty in plans of versions
            that did not know it; a copy of theirs serves no more.
        copy_state: the same of the copy itself.
    """

    service_address: str | None = None
    copy_folder: str | None = None
    copied_files: tuple[str, ...] = ()
    copied_state: str = ""
    copy_state: str = ""
