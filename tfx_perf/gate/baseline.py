"""The runs that a gate knows, and how it adds one: what ledgers and `baseline_uri` come to."""

from collections.abc import Iterable

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.mirror import Mirror
from tfx_perf.gate.record import GateRecord
from tfx_perf.settings.gate import GateSettings


def known(settings: GateSettings, ledgers: Iterable[Ledger] = ()) -> Ledger:
    """Returns the merge of the ledgers and the one at `baseline_uri`.

    Args:
        settings: the gate's.
        ledgers: of runs before.

    Raises:
        UserError: `baseline_uri` cannot be read.
    """
    found = list(ledgers)
    if settings.baseline_uri:
        found.append(Mirror(settings.baseline_uri).read())
    return Ledger().merge(*found).last(settings.kept_runs, pinned=settings.anchor)


def extended(before: Ledger, decision: GateRecord, *, settings: GateSettings) -> Ledger:
    """Returns the ledger for the next run, and adds a blessed run to `baseline_uri`.

    Args:
        before: what `known` returned.
        decision: on this run; a refusal leaves everything as it is.
        settings: the gate's.

    Raises:
        UserError: `baseline_uri` cannot be written. The run must then not be blessed.
    """
    if not decision.blessed:
        return before
    updated = before.append(decision.candidate, keep=settings.kept_runs, pinned=settings.anchor)
    if settings.baseline_uri:
        mirror = Mirror(settings.baseline_uri)
        mirror.add(updated)
        mirror.prune(decision.candidate, keep=settings.kept_runs, pinned=settings.anchor)
    return updated
