"""Runs from wherever they are recorded: ML Metadata, a ledger, an artifact's file."""

import contextlib
import dataclasses
import json
import logging
import pathlib
from collections.abc import Iterable

import upath

from tfx_perf.core import errors, metrics, storage
from tfx_perf.gate import decision as decisions
from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.ledger_store import LedgerArtifacts, LedgerFolder
from tfx_perf.gate.run import Run, completed
from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.mlmd import store as metadata_store
from tfx_perf.mlmd.runs import RecordedRun
from tfx_perf.training import record as training_record
from tfx_perf.training.record import TrainingRecord

# The names in our templates, in TFX's, and what many write by hand.
_DATABASES = "metadata.sqlite", "metadata.db", "mlmd.sqlite", "mlmd.db"
_ARTIFACTS = decisions.FILE_NAME, training_record.FILE_NAME
_SHOWN = 3
_DEPTH = 3  # TFX's templates have tfx_metadata/PIPELINE/metadata.db
_EXPECTED = (
    "Expected ML Metadata (a SQLite file, mysql://… or postgresql://…), a ledger's JSON file, or "
    "the folder at baseline_uri"
)

_LOGGER = logging.getLogger(__name__)


def read(
    source: str, *, pipeline: str | None = None, limit: int | None = None
) -> list[RecordedRun]:
    """Returns the runs on record, newest first.

    Where the artifacts' files can be read, figures have all their digits, and runs their
    environment; ML Metadata itself keeps six decimals and no environment.

    Args:
        source: a database (see `metadata_store.open_store`), a ledger's JSON file, the folder at
            `baseline_uri`, or a folder that `resolved` finds a database for. Ledgers hold only
            runs that are blessed, or were; the folder of a script's figures holds its last run.
        pipeline: only this pipeline's runs, and those in ledgers of earlier versions, which
            know none.
        limit: at most this many; None for all.
    """
    source = resolved(source)
    if is_metadata(source):
        runs = recorded_runs.read_runs(source, pipeline=pipeline, limit=limit)
        names = {run.pipeline for run in runs}
        known = {name: people_decided(source, pipeline=name) for name in names}
        return [_with_decision(_with_files(run), known[run.pipeline]) for run in runs]
    on_record = [read_artifact(source)] if _is_artifact(source) else _runs_of(read_ledger(source))
    return [run for run in on_record if pipeline is None or run.pipeline in ("", pipeline)][:limit]


def read_ledger(source: str, *, pipeline: str | None = None) -> Ledger:
    """Returns the blessed runs of a source as for `read`; None means the only pipeline there."""
    source = resolved_ledger(source)
    if is_metadata(source):
        return LedgerArtifacts(source, pipeline=pipeline).read()
    if storage.is_file(source):
        return Ledger.read(source)
    ledger = LedgerFolder(source).read()
    if not ledger.runs:  # it is probably not the intended folder
        raise errors.UserError(
            "Expected ML Metadata or a ledger. "
            f"Received: path={source}, a folder that holds neither, or none yet. "
            "Give the file that the pipeline's metadata_connection_config names, or the gate's "
            "baseline_uri."
        )
    return ledger


def read_artifact(path: str) -> RecordedRun:
    """Returns the run in `evaluation.json` or `metrics.json`, or in the newer one of a folder."""
    file = storage.path(path)
    if not storage.is_file(file):
        files = [file / name for name in _ARTIFACTS if storage.exists(file / name)]
        if not files:
            raise errors.UserError(
                f"Expected {' or '.join(_ARTIFACTS)}, or a folder that has one. Received: "
                f"path={path}, which has none. A run in a ledger is named by its id, with --source."
            )
        file = max(files, key=storage.modified_time)
    if _schema(file) != TrainingRecord.SCHEMA:
        decision = GateRecord.read(file)
        run = _runs_of(Ledger(entries=(decision.candidate,)))[0]
        beside = file.with_name(training_record.FILE_NAME)  # of a script
        return dataclasses.replace(
            run,
            blessed=decision.blessed,
            headline=decision.headline,
            replaced_runs=TrainingRecord.read(beside).runs_before if storage.is_file(beside) else 0,
        )
    training = TrainingRecord.read(file)
    return RecordedRun(
        run_id=str(path),
        pipeline="",
        created=storage.modified_time(file),
        state="complete",
        metrics=metrics.checked(training.figures()),
        blessed=None,
        pushed=None,
        folders={},
        plans={"training plan": training.trained_with},
        environment=completed(training.environment),
        replaced_runs=training.runs_before,
    )


def judged_runs(source: str, *, pipeline: str | None = None) -> list[tuple[Run, bool]]:
    """Returns the readable runs as the gate saw them, oldest first, and whether each is blessed."""
    source = resolved(source)
    if not is_metadata(source):
        entries = read_ledger(source).entries
        return [
            (run, True) for run in entries if pipeline is None or run.pipeline in ("", pipeline)
        ]
    runs: dict[str, tuple[Run, bool]] = {}  # several runs may have taken one from cache
    for run in reversed(read(source, pipeline=pipeline)):
        if run.blessed is None:
            continue
        try:
            folder = run.folders["PerfEvaluation"]
            runs[folder] = read_judged(folder), run.blessed
        except (KeyError, errors.UserError) as error:
            _LOGGER.warning("Skipping run %s: %s", run.run_id, error)
    return list(runs.values())


def read_judged(path: str) -> Run:
    """Returns the run of an `evaluation.json`, or of one in a folder, local or remote."""
    file = storage.path(path)
    return GateRecord.read(file if storage.is_file(file) else file / decisions.FILE_NAME).candidate


def resolved(source: str) -> str:
    """Returns the database in, below or beside a local folder; any other source as it is."""
    if not source:  # e.g. an unset shell variable
        raise errors.UserError(f"{_EXPECTED}. Received: path=''.")
    folder = pathlib.Path(source)
    if "://" in source or not folder.is_dir():
        return source
    files: list[pathlib.Path] = []
    for depth in range(_DEPTH):
        files = files or [each for name in _DATABASES for each in folder.glob("*/" * depth + name)]
    schemas = (_schema(storage.path(str(each))) for each in folder.glob("*.json"))
    is_mirror = any(each is not None for each in schemas) or not any(folder.iterdir())
    if not files and is_mirror:
        return source
    files = files or [each for name in _DATABASES for each in folder.parent.glob(name)]
    if not files:
        raise errors.UserError(
            f"{_EXPECTED}, or a folder that has {' or '.join(_DATABASES)} in it or beside it. "
            f"Received: path={source}, which has none. {_remedy(folder)}"
        )
    if len(files) > 1:
        names = ", ".join(map(str, sorted(files)))
        raise errors.UserError(
            f"Expected one database of ML Metadata. Received: path={source}, which holds several. "
            f"Give one of them: {names}."
        )
    return str(files[0])


def resolved_ledger(source: str) -> str:
    """Returns what `resolved` does; raises a UserError for the figures of one run."""
    source = resolved(source)
    if not is_metadata(source) and _is_artifact(source):
        raise errors.UserError(
            f"{_EXPECTED}. Received: path={source}, which has the figures of one run. Give the "
            "gate.baseline_uri of its settings, which has all blessed runs."
        )
    return source


def _remedy(folder: pathlib.Path) -> str:
    """Returns what to give instead of a folder that holds no runs."""
    folders = {str(file.parent) for name in _ARTIFACTS for file in folder.glob(f"*/{name}")}
    if folders:
        return f"Give the folder of a run's figures, e.g. {', '.join(sorted(folders)[:_SHOWN])}."
    return (
        "Give the file that the pipeline's metadata_connection_config names, or the folder= of "
        "tfx_perf.optimized in a script."
    )


def is_metadata(source: str) -> bool:
    """Whether `source` is a database of ML Metadata rather than a ledger."""
    if metadata_store.is_url(source):
        return True
    if "://" in source:
        return False
    if not storage.exists(source):
        raise errors.UserError(
            f"{_EXPECTED}. Received: path={source}, which does not exist. A pipeline's first run "
            "creates its database."
        )
    return storage.is_file(source) and not source.endswith(".json")


def _is_artifact(source: str) -> bool:
    """Whether a local path is an artifact's or script run's file, or its folder."""
    path = pathlib.Path(source)
    if path.is_dir():
        return any((path / name).is_file() for name in _ARTIFACTS)
    return path.name in _ARTIFACTS


def people_decided(source: str, *, pipeline: str | None) -> Ledger:
    """Returns a source's ledger for the decisions in it; an empty one if it cannot be read."""
    try:
        return read_ledger(source, pipeline=pipeline)
    except errors.UserError as error:  # must not hide the runs
        _LOGGER.warning("Decisions of people are not shown: %s", error)
        return Ledger()


def _with_files(run: RecordedRun) -> RecordedRun:
    """Adds the figures and environment from the artifacts' files, as far as they can be read."""
    figures = dict(run.metrics)
    environment: dict[str, str] = {}
    for kind, file_name in (
        ("PerfMetrics", training_record.FILE_NAME),
        ("PerfEvaluation", decisions.FILE_NAME),
    ):
        if kind in run.folders:
            with contextlib.suppress(errors.UserError):  # gone, or e.g. of an older version
                judged = read_artifact(str(storage.path(run.folders[kind]) / file_name))
                figures |= judged.metrics
                environment |= judged.environment
    return dataclasses.replace(run, metrics=figures, environment=environment)


def _with_decision(run: RecordedRun, ledger: Ledger) -> RecordedRun:
    act = next((act for act in reversed(ledger.acts) if act.is_about(run.key)), None)
    if act is None:
        return run
    done = "blessed" if act.kind == "bless" else "revoked"
    return dataclasses.replace(
        run,
        blessed=act.kind == "bless",
        note=f"{done} by {act.who} on {act.time:%Y-%m-%d}: {act.reason}",
    )


def _runs_of(ledger: Ledger) -> list[RecordedRun]:
    runs: Iterable[RecordedRun] = (
        RecordedRun(
            run_id=entry.run_id,
            pipeline=entry.pipeline,
            node=entry.node,
            created=entry.time,
            state="complete",
            metrics=entry.known_figures,
            blessed=place < len(ledger.entries),
            pushed=None,
            folders={},
            environment=entry.environment,
        )
        for place, entry in enumerate(ledger.runs)
    )
    newest_first = sorted(runs, key=lambda run: run.created, reverse=True)
    return [_with_decision(run, ledger) for run in newest_first]


def _schema(path: upath.UPath) -> str | None:
    """Returns the schema that a JSON file names; None for another program's, which names none."""
    try:
        document = json.loads(storage.read_bytes(path))
    except (OSError, ValueError):
        return ""  # reading it reports why
    return document.get("schema") if isinstance(document, dict) else None
