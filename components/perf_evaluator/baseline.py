"""Where PerfEvaluator finds the blessed runs, and where it puts a further one."""

import logging
from collections.abc import Iterator, Sequence

from tfx.types import artifact

from tfx_perf import errors, storage
from tfx_perf.gate import ledger as ledgers
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.mirror import Mirror
from tfx_perf.gate.record import GateRecord
from tfx_perf.settings.gate import GateSettings

_LOGGER = logging.getLogger(__name__)


def read(resolved: Sequence[artifact.Artifact] | None, settings: GateSettings) -> Ledger:
    """Returns the merge of the resolved ledgers and the one at `baseline_uri`.

    Each may be missing. Several are resolved because runs at the same time extend the same
    ledger, each without the other's entry.

    Args:
        resolved: ledgers of runs before; None or empty on the first run.
        settings: the gate's.

    Raises:
        UserError: a ledger is damaged, all those resolved are gone, or `baseline_uri` cannot
            be read.
    """
    found = list(_read_resolved(resolved or []))
    if settings.baseline_uri:
        found.append(Mirror(settings.baseline_uri).read())
    return Ledger().merge(*found).last(settings.kept_runs, pinned=settings.anchor)


def extended(known: Ledger, decision: GateRecord, settings: GateSettings) -> Ledger:
    """Returns the ledger for the next run, and adds a blessed run to `baseline_uri`.

    Args:
        known: what `read` returned.
        decision: on this run; a refusal leaves everything as it is.
        settings: the gate's.

    Raises:
        UserError: `baseline_uri` cannot be written. The run must then not be blessed.
    """
    if not decision.blessed:
        return known
    updated = known.append(
        decision.candidate, keep=settings.kept_runs, pinned=settings.anchor
    )
    if settings.baseline_uri:
        mirror = Mirror(settings.baseline_uri)
        mirror.add(updated)
        mirror.prune(decision.candidate, keep=settings.kept_runs, pinned=settings.anchor)
    return updated


def _read_resolved(resolved: Sequence[artifact.Artifact]) -> Iterator[Ledger]:
    paths = [storage.path(item.uri) / ledgers.FILE_NAME for item in resolved]
    gone = [path for path in paths if not storage.exists(path)]
    if paths and len(gone) == len(paths):
        raise errors.UserError(
            f"Expected the ledger of a run before. Received: path={gone[-1]}, which does not exist."
            " Restore the file, or run once without the ledger input to begin a new one."
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
