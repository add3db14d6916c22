"""The ledgers that a pipeline's resolver found."""

import logging
from collections.abc import Iterator, Sequence

from tfx.types import artifact

from tfx_perf import errors, storage
from tfx_perf.gate import ledger as ledgers
from tfx_perf.gate.ledger import Ledger

_LOGGER = logging.getLogger(__name__)


def read(resolved: Sequence[artifact.Artifact]) -> Iterator[Ledger]:
    """Yields ledgers of runs before.

    Several are resolved because runs at the same time extend the same ledger, each without the
    other's entry. Some may be gone.

    Args:
        resolved: the artifacts; none on the first run.

    Raises:
        UserError: a ledger is damaged, or all are gone.
    """
    paths = [storage.path(item.uri) / ledgers.FILE_NAME for item in resolved]
    gone = [path for path in paths if not storage.exists(path)]
    if paths and len(gone) == len(paths):
        raise errors.UserError(
            f"Expected the ledger of a run before. Received: path={gone[-1]}, which does not exist."
            " Restore the file. If you have deleted the pipeline's output, delete its metadata "
            "database, too; or run once without the ledger input to begin a new one."
        )
    for path in gone:
        _LOGGER.warning("The ledger %s is gone; newer ones have its runs.", path)
    for path in paths:
        if path in gone:
            continue
        try:
            yield Ledger.read(path)
        except errors.UserError as error:
            raise errors.UserError(
                f"{error} Restore the file; or remove it and, if no other ledger is left, run "
                "once without the ledger input to begin a new one."
            ) from error
