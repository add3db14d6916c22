"""Finds the runs, and the metrics, that a person means by a name."""

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from tfx_perf.core import errors

if TYPE_CHECKING:
    from tfx_perf.gate.run import Run
    from tfx_perf.mlmd.runs import RecordedRun

_SHOWN = 5
RunT = TypeVar("RunT", bound="Run | RecordedRun")


def pick(name: str, known: Sequence[str], *, what: str = "run") -> str:
    """Returns the one known name that is or begins with `name`; `known` has the likeliest first."""
    if name in known:
        return name
    matches = list(dict.fromkeys(item for item in known if item.startswith(name)))
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = f" and {len(matches) - _SHOWN} more" if matches[_SHOWN:] else ""
        listed = ", ".join(matches[:_SHOWN]) + more
        raise errors.UserError(
            f"Expected the beginning of one {what}'s name. Received: {what}={name}, with which "
            f"{len(matches)} begin: {listed}."
        )
    near = difflib.get_close_matches(name, known, n=_SHOWN) or list(known)
    known_ones = f"one {what} on record, e.g. {', '.join(near[:_SHOWN])}"
    expected = known_ones if near else f"a {what}, and none is on record"
    raise errors.UserError(f"Expected {expected}. Received: {what}={name}.")


def pick_run(
    name: str, runs: Sequence[RunT], *, pipeline: str | None = None, node: str | None = None
) -> RunT:
    """Returns the one run whose id is `name` or begins with it; None means any pipeline or node.

    Pipelines that share a ledger, and gates of one pipeline, may have runs of the same id; the
    error tells them apart. The first of several in one pipeline and node is returned.
    """
    nodes = list(dict.fromkeys(run.node for run in runs if run.node))
    node = pick(node, nodes, what="node") if node and nodes else node
    runs = [
        run
        for run in runs
        if pipeline in (None, run.pipeline or pipeline) and node in (None, run.node or node)
    ]
    run_id = pick(name, [run.run_id for run in runs])
    gates: dict[tuple[str, str], RunT] = {}
    for run in runs:
        if run.run_id == run_id:
            gates.setdefault((run.pipeline, run.node), run)
    if len(gates) > 1:
        places = "; ".join(f"--pipeline {its} --node {gate}" for its, gate in sorted(gates))
        raise errors.UserError(
            f"Expected one run. Received: run={run_id}, of which there are {len(gates)}: {places}."
        )
    return next(iter(gates.values()))
