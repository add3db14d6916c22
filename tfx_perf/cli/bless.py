"""`tfx-perf bless`: counts a run as baseline although the gate refused it; `revoke` undoes it."""

import datetime
import functools
import getpass
import socket
from typing import TYPE_CHECKING, Any, Literal

import click

from tfx_perf.cli import names, terminal
from tfx_perf.core import errors, storage

if TYPE_CHECKING:
    from tfx_perf.gate.ledger import Ledger
    from tfx_perf.gate.run import Run
    from tfx_perf.mlmd.runs import RecordedRun

_OPTIONS = (
    click.argument("run"),
    click.option("--reason", metavar="TEXT", required=True, help="Why; recorded."),
    click.option(
        "--source", "--metadata", "source", metavar="SOURCE",
        help="ML Metadata of the pipeline (a SQLite file, a project's folder, mysql://… or "
        "postgresql://…), or a baseline_uri.",
    ),
    click.option(
        "--baseline-uri", metavar="URI",
        help="The gate's baseline_uri. Without it, a new PerfLedger is put into ML Metadata.",
    ),
    click.option("--pipeline", metavar="NAME", help="Pipeline, if there are several."),
    click.option("--node", metavar="ID", help="PerfEvaluator node, if there are several."),
    click.option("--who", metavar="NAME", help="Who decides; by default you, at this machine."),
    click.option("--json", "as_json", is_flag=True, help="JSON, not a sentence."),
)  # fmt: skip


def _with_options(command: Any) -> Any:
    return functools.reduce(lambda wrapped, option: option(wrapped), _OPTIONS[::-1], command)


@click.command("bless")
@_with_options
def command(**given: Any) -> None:
    """Makes RUN count as baseline from now on.

    RUN is a run's id in ML Metadata, or the beginning of one; or the path of the
    evaluation.json that PerfEvaluator wrote about it. Who, when and why are recorded.
    The model is not pushed by this.
    """
    _record("bless", **given)


@click.command("revoke")
@_with_options
def revoke(**given: Any) -> None:
    """Makes RUN no longer count as baseline.

    RUN is the id of a run in the ledger, or the beginning of one. Who, when and why are
    recorded. A model that was pushed stays where it is.
    """
    _record("unbless", **given)


def _record(
    kind: Literal["bless", "unbless"],
    *,
    run: str,
    reason: str,
    source: str | None,
    baseline_uri: str | None,
    pipeline: str | None,
    node: str | None,
    who: str | None,
    as_json: bool,
) -> None:
    from tfx_perf.gate import history
    from tfx_perf.gate.ledger import Ledger, Override
    from tfx_perf.gate.ledger_store import LedgerArtifacts, LedgerFolder
    from tfx_perf.gate.run import Run

    if not reason.strip():
        raise errors.UserError("Expected a reason in words. Received: reason=''.")
    if not (source or baseline_uri):
        raise errors.UserError(
            "Expected --source, --baseline-uri or both. Received: neither. "
            "Name the ledger that the gate reads."
        )
    # The first is the one to write to.
    places: list[LedgerFolder | LedgerArtifacts] = (
        [LedgerFolder(baseline_uri)] if baseline_uri else []
    )
    has_metadata = True
    if source:
        source = history.resolved_ledger(source)
        has_metadata = history.is_metadata(source)
        places.append(
            LedgerArtifacts(source, pipeline=pipeline) if has_metadata else LedgerFolder(source)
        )
    known = Ledger().merge(*(place.read() for place in places))
    chosen = _find(kind, run, known=known, source=source, pipeline=pipeline, node=node)
    if isinstance(chosen, Run):  # it may have taken its training from the cache
        alike = [entry for entry in known.entries if entry.shares_training_with(chosen)]
        chosen = alike[0] if alike else chosen
    counts = any(entry.key == chosen.key for entry in known.entries)
    changes = counts is (kind == "unbless")
    # Later than all earlier decisions, even if this clock is behind theirs.
    before = [act.time for act in known.acts if act.is_about(chosen.key)]
    after = [time + datetime.timedelta(microseconds=1) for time in before]
    act = Override(
        kind=kind,
        run_id=chosen.run_id,
        pipeline=chosen.pipeline,
        node=chosen.node,
        who=who or _user_at_host(),
        time=max([datetime.datetime.now(datetime.timezone.utc), *after]),
        reason=reason.strip(),
    )
    if changes and isinstance(chosen, Run):
        places[0].add(Ledger(entries=(chosen,), acts=(act,)))
    if as_json:
        terminal.show_json({**act.model_dump(mode="json"), "recorded": changes})
        return
    if changes:
        place = baseline_uri or ("ML Metadata" if has_metadata else source)
        counting = {
            "bless": "is blessed: later runs are compared with it",
            "unbless": "is no longer blessed: later runs are not compared with it",
        }
        outcome = f"{counting[kind]}. Recorded in {place}."
    elif kind == "bless":
        outcome = "is blessed already; nothing was recorded."
    else:
        # The ledger keeps only the last blessed runs.
        is_blessed = getattr(chosen, "blessed", None)
        why = "is no longer in the ledger" if is_blessed else "is not blessed"
        outcome = f"{why}, so it does not count as baseline anyway; nothing was recorded."
    click.echo(f"{chosen.run_id} {outcome}")


def _user_at_host() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError) as error:  # e.g. in a container
        raise errors.UserError(
            "Expected a user with a name. Received: none. Give --who."
        ) from error


def _find(
    kind: str,
    name: str,
    *,
    known: "Ledger",
    source: str | None,
    pipeline: str | None,
    node: str | None,
) -> "Run | RecordedRun":
    from tfx_perf.gate import history
    from tfx_perf.gate.run import Run

    if name and storage.exists(name):
        return history.read_judged(name)
    in_ledger = {run.key for run in known.runs}
    others = [
        run
        for run in (history.read(source, pipeline=pipeline) if source else ())
        if run.key not in in_ledger
        and ("", "", run.run_id) not in in_ledger  # as in ledgers of earlier versions
    ]
    runs: list[Run | RecordedRun] = [*others, *known.runs]
    chosen = names.pick_run(name, runs, pipeline=pipeline, node=node)
    if isinstance(chosen, Run) or kind == "unbless":
        return chosen
    if "PerfEvaluation" not in chosen.folders:
        raise errors.UserError(
            f"Expected a run that PerfEvaluator has judged. Received: run={chosen.run_id}, which "
            f"is {chosen.state} and has no evaluation."
        )
    return history.read_judged(chosen.folders["PerfEvaluation"])
