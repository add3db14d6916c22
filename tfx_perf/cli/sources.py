"""Where commands read the runs on record from."""

from tfx_perf import errors, storage


def check_not_empty(source: str) -> None:
    """Checks that there is something in which runs are recorded.

    A database or a ledger's file without runs is an answer. A folder without any is, as a rule,
    another one than was meant.

    Args:
        source: see `gate.history.read`.

    Raises:
        UserError: it is a folder, local or remote, with neither a database nor a ledger.
    """
    from tfx_perf.gate import history

    place = history.resolved(source)
    if history.is_metadata(place) or storage.is_file(place) or history.read_ledger(place).runs:
        return
    raise errors.UserError(
        "Expected ML Metadata or a ledger. "
        f"Received: path={source}, a folder that holds neither, or none yet. "
        "Give the file that the pipeline's metadata_connection_config names, or the gate's "
        "baseline_uri."
    )
