"""`tfx-perf bless`: counts a run as baseline though the gate refused it; `unbless` undoes it."""

import datetime
import functools
import getpass
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import click
from rich import markup

from tfx_perf.cli import names, terminal
from tfx_perf.core import errors, storage

if TYPE_CHECKING:
    from tfx_perf.gate.ledger import Ledger
    from tfx_perf.gate.ledger_store import LedgerArtifacts, Mirror
    from tfx_perf.gate.run import Run
    from tfx_perf.mlmd import runs as recorded_runs

_OPTIONS = (
    click.option("--reason", metavar="TEXT", required=True, help="Why; recorded."),
    click.option(
        "--metadata", "source", metavar="DB",
        help="ML Metadata of the pipeline: a SQLite file, a project's folder, mysql://… or "
        "postgresql://….",
    ),
    click.option(
        "--baseline-uri", metavar="URI",
        help="The gate's baseline_uri. Without it, a new PerfLedger is put into ML Metadata.",
    ),
    click.option("--pipeline", metavar="NAME", help="If there are several."),
    click.option("--node", metavar="ID", help="Of the PerfEvaluator, if there are several."),
    click.option("--who", metavar="NAME", help="Who decides; by default you, at this machine."),
    click.option("--json", "as_json", is_flag=True, help="JSON, not a sentence."),
)  # fmt: skip


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of both commands."""
    return functools.reduce(lambda wrapped, option: option(wrapped), _OPTIONS[::-1], command)


@click.command("bless")
@click.argument("run")
@options
def command(*, run: str, **chosen: Any) -> None:
    """Makes RUN count as baseline from now on.

    RUN is a run's id in ML Metadata, or the beginning of one; or the path of the
    evaluation.json that PerfEvaluator wrote about it. Who, when and why are recorded.
    The model is not pushed by this.
    """
    record("bless", run, **chosen)


def record(
    kind: Literal["bless", "unbless"],
    name: str,
    *,
    reason: str,
    source: str | None,
    baseline_uri: str | None,
    pipeline: str | None,
    node: str | None,
    who: str | None,
    as_json: bool,
) -> None:
    """Writes the decision on a run (id, beginning of it, or evaluation) to the gate's ledger."""
    from tfx_perf.gate import history
    from tfx_perf.gate.ledger import Act, Ledger
    from tfx_perf.gate.run import Run

    if not reason.strip():
        raise errors.UserError("Expected a reason in words. Received: reason=''.")
    if source:
        source = history.resolved(source)
    places = _places(source, baseline_uri=baseline_uri, pipeline=pipeline)
    known = Ledger().merge(*(place.read() for place in places))
    run = _find(kind, name, known=known, source=source, pipeline=pipeline, node=node)
    counts = any(entry.key == run.key for entry in known.entries)
    changes = counts is (kind == "unbless")
    act = Act(
        kind=kind,
        run_id=run.run_id,
        pipeline=run.pipeline,
        node=run.node,
        who=who or _whoever(),
        time=_now_after(act.time for act in known.acts if act.is_about(run.key)),
        reason=reason.strip(),
    )
    if changes and isinstance(run, Run):
        places[0].add(Ledger(entries=(run,), acts=(act,)))
    if as_json:
        terminal.show_json({**act.model_dump(mode="json"), "recorded": changes})
    elif changes:
        answer = "no longer counts as baseline"
        if kind == "bless":
            answer = "counts as baseline from now on"
        terminal.show(
            f"{markup.escape(run.run_id)} {answer}. "
            f"Recorded in {markup.escape(baseline_uri or 'ML Metadata')}."
        )
    else:
        answer = "counts" if kind == "bless" else f"{_absence(run)}, so it does not count"
        terminal.show(
            f"{markup.escape(run.run_id)} {answer} as baseline anyway; nothing was recorded."
        )


def _absence(run: "Run | recorded_runs.RecordedRun") -> str:
    """Returns why the ledger does not count a run: it keeps only the last blessed ones."""
    return "is no longer in the ledger" if getattr(run, "blessed", None) else "is not blessed"


def _now_after(times: Iterable[datetime.datetime]) -> datetime.datetime:
    """Returns the time, or one after all given ones if this clock is behind theirs."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return max([now, *(time + datetime.timedelta(microseconds=1) for time in times)])


def _whoever() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError) as error:  # e.g. in a container
        raise errors.UserError(
            "Expected a user with a name. Received: none. Give --who."
        ) from error


def _places(
    source: str | None, *, baseline_uri: str | None, pipeline: str | None
) -> "list[Mirror | LedgerArtifacts]":
    """Returns the ledger's places; the first is the one to write to."""
    from tfx_perf.gate.ledger_store import LedgerArtifacts, Mirror

    places: list[Any] = []
    if baseline_uri:
        places.append(Mirror(baseline_uri))
    if source:
        places.append(LedgerArtifacts(source, pipeline=pipeline))
    if not places:
        raise errors.UserError(
            "Expected --metadata, --baseline-uri or both. Received: neither. "
            "Name the ledger that the gate reads."
        )
    return places


def _find(
    kind: str,
    name: str,
    *,
    known: "Ledger",
    source: str | None,
    pipeline: str | None,
    node: str | None,
) -> "Run | recorded_runs.RecordedRun":
    """Returns the run, with its figures if it is to be blessed."""
    from tfx_perf.gate import history
    from tfx_perf.gate.run import Run

    if kind == "bless" and storage.exists(name):
        return history.read_judged(name)
    in_ledger = {run.key for run in known.runs}
    others = [
        run
        for run in (history.read(source, pipeline=pipeline) if source else ())
        if run.key not in in_ledger
        and ("", "", run.run_id) not in in_ledger  # as in ledgers of earlier versions
    ]
    runs: list[Run | recorded_runs.RecordedRun] = [*others, *known.runs]
    found = names.pick_run(name, runs, pipeline=pipeline, node=node)
    if isinstance(found, Run) or kind == "unbless":
        return found
    if "PerfEvaluation" not in found.folders:
        raise errors.UserError(
            f"Expected a run that PerfEvaluator has judged. Received: run={found.run_id}, which "
            f"is {found.state} and has no evaluation."
        )
    return history.read_judged(found.folders["PerfEvaluation"])
