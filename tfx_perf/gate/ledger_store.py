"""Where ledgers are kept: a folder at `baseline_uri`, and the `PerfLedger`s in ML Metadata."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator

from fsspec import core
from fsspec.implementations import local

from tfx_perf import mlmd
from tfx_perf.config.gate import GateSettings
from tfx_perf.core import cache_key, errors, storage
from tfx_perf.gate import ledger as ledgers
from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.ledger import Ledger, Override
from tfx_perf.gate.run import Run
from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.mlmd import store as metadata_store

_LOGGER = logging.getLogger(__name__)

_TYPE = "tfx_perf.PerfLedger"
EXECUTION_TYPE = "tfx_perf.Acts"
"""Type of the executions that record people's decisions."""

_OUTPUT_KEY = "updated_ledger"  # as PerfEvaluator's
_CONTEXT_TYPE = "pipeline"
_COUNT = 10  # as many as latest_ledger() resolves


def known(settings: GateSettings, before: Iterable[Ledger] = ()) -> Ledger:
    """Returns the merge of the earlier runs' ledgers and the one at `baseline_uri`."""
    ledgers = list(before)
    if settings.baseline_uri:
        ledgers.append(LedgerFolder(settings.baseline_uri).read())
    return Ledger().merge(*ledgers).last(settings.ledger_size, pinned=settings.reference_run)


def extended(before: Ledger, decision: GateRecord, *, settings: GateSettings) -> Ledger:
    """Returns the ledger for the next run, and adds a blessed run to `baseline_uri`.

    If that raises a `UserError`, the run must not be blessed.
    """
    if not decision.blessed:
        return before
    updated = before.append(
        decision.candidate, keep=settings.ledger_size, pinned=settings.reference_run
    )
    if settings.baseline_uri:
        mirror = LedgerFolder(settings.baseline_uri)
        mirror.add(updated)
        mirror.prune(decision.candidate, keep=settings.ledger_size, pinned=settings.reference_run)
    return updated


class LedgerFolder:
    """A folder of ledgers whose merge is the ledger.

    Each writer adds its own file, with entries that the folder does not hold yet, and never changes
    a file. So writers cannot overwrite each other, on any store and without a lock: an object store
    only needs atomic puts and listings that show them, which S3 and Google Cloud Storage guarantee.
    A local file is written under another name and then renamed. Later writers remove files whose
    runs are all too old to count.

    Every file has a checksum. While the folder holds a `*.json` that is damaged or not a ledger, it
    is neither read nor written, so that no run is judged by half a baseline.
    """

    def __init__(self, uri: str) -> None:
        """Takes a local path or a URL for fsspec, e.g. `gs://` or `s3://`; it need not exist."""
        self._uri = uri
        self._store = storage.path(uri, name="baseline_uri").fs
        self._folder = core.strip_protocol(uri)
        self._parts: dict[str, Ledger] = {}  # by path; a file never changes

    def read(self) -> Ledger:
        """Returns the ledger; empty if the folder does not exist or is empty."""
        return Ledger().merge(*self._files().values())

    def add(self, ledger: Ledger) -> None:
        """Writes the runs and acts that the folder does not hold yet; an error changes nothing."""
        news = ledger.beyond(self.read())
        if news != Ledger():
            self._put(news)

    def prune(self, run: Run, *, keep: int, pinned: str | None = None) -> None:
        """Removes files whose runs are all of the run's node, and too old for `Ledger.last`."""
        files = self._files()
        counting = Ledger().merge(*files.values()).last(keep, pinned=pinned)
        for path, part in files.items():
            is_own = all(one.shares_node_with(run) for one in part.runs)
            if is_own and not part.acts and not any(map(counting.holds, part.runs)):
                with self._access("written"), contextlib.suppress(FileNotFoundError):
                    self._store.rm_file(path)  # unless another writer was quicker

    def _files(self) -> dict[str, Ledger]:
        with self._access("read"):
            if self._store.isfile(self._folder):
                raise errors.UserError(
                    f"Expected baseline_uri to be a folder. Received: baseline_uri={self._uri}, "
                    "which is a file; name its folder, or one that does not exist yet."
                )
            try:
                listed = self._store.ls(self._folder, detail=False)
            except FileNotFoundError:
                return {}
            paths = sorted(path for path in listed if path.endswith(".json"))
            new = [path for path in paths if path not in self._parts]
            # Reads all at once. Unlike cat(), it does not treat a path with * or [ as a pattern.
            texts = self._store.cat_ranges(new, None, None, on_error="return")
            for path, text in zip(new, texts, strict=True):
                if isinstance(text, FileNotFoundError):
                    continue  # too old, and removed since it was listed
                if isinstance(text, Exception):
                    raise text
                source = self._store.unstrip_protocol(path)
                self._parts[path] = Ledger.from_text(text, source=source)
        return {path: self._parts[path] for path in paths if path in self._parts}

    def _put(self, ledger: Ledger) -> None:
        text = ledger.to_text().encode()
        items: tuple[Run | Override, ...] = (*ledger.runs, *ledger.acts)
        newest = max(item.time for item in items)
        # The same content has the same name, so that a repeated write changes nothing.
        name = f"{newest:%Y%m%dT%H%M%S}-{cache_key.digest(text)}.json"
        with self._access("written"):
            if isinstance(self._store, local.LocalFileSystem):
                folder = storage.make_folder(self._folder)
                storage.write_bytes(folder / name, text, is_durable=True)
            else:
                self._store.pipe_file(f"{self._folder}/{name}", text)

    @contextlib.contextmanager
    def _access(self, verb: str) -> Iterator[None]:
        """Turns any exception of a driver into a UserError of one line; each raises its own."""
        try:
            yield
        except errors.UserError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise errors.UserError(
                f"Expected a baseline_uri that can be {verb}. "
                f"Received: baseline_uri={self._uri} ({reason})."
            ) from error


class LedgerArtifacts:
    """Reads the ledgers that `latest_ledger()` resolves in a pipeline's next run, and adds to them.

    An addition becomes a separate artifact, the output of a separate execution in the pipeline's
    context. The artifacts' folders must be local.
    """

    def __init__(self, source: str, *, pipeline: str | None) -> None:
        """Names a database (see `metadata_store.open_store`); None means its only pipeline."""
        self._source = source
        self._pipeline = pipeline or _only_pipeline(source)

    def read(self) -> Ledger:
        """Returns the merge of the last ledgers; those whose files are gone are left out."""
        return _merged(self._latest(metadata_store.open_store(self._source)))

    def add(self, ledger: Ledger) -> None:
        """Publishes the merge of the last ledgers and this one, with the runs and acts to add."""
        store = metadata_store.open_store(self._source, writable=True)
        latest = self._latest(store)
        parents = [storage.path(item.uri).parent for item in latest]
        folders = [folder for folder in parents if storage.exists(folder)]
        if not folders:
            raise errors.UserError(
                "Expected a pipeline with a ledger whose folder is at hand. Received: "
                f"pipeline={self._pipeline}. Run PerfEvaluator first, or name a baseline_uri."
            )
        merged = _merged(latest).merge(ledger)
        folder = folders[-1] / f"acts-{cache_key.digest(merged.to_text().encode())}"
        with errors.writing_to("path", folder):
            storage.make_folder(folder)
            merged.write(folder / ledgers.FILE_NAME)
        execution = mlmd.proto.Execution(
            type_id=store.put_execution_type(mlmd.proto.ExecutionType(name=EXECUTION_TYPE)),
            last_known_state=mlmd.proto.Execution.COMPLETE,
        )
        for key in ("kind", "run_id", "who", "reason"):
            of_all = "; ".join(str(getattr(act, key)) for act in ledger.acts)
            execution.custom_properties[key].string_value = of_all
        event = mlmd.proto.Event(type=mlmd.proto.Event.OUTPUT)
        event.path.steps.add().key = _OUTPUT_KEY
        event.path.steps.add().index = 0
        artifact = mlmd.proto.Artifact(
            type_id=latest[-1].type_id, uri=str(folder), state=mlmd.proto.Artifact.LIVE
        )
        context = store.get_context_by_type_and_name(_CONTEXT_TYPE, self._pipeline)
        try:
            store.put_execution(execution, [(artifact, event)], [context])
        except mlmd.errors.StatusError as error:
            raise errors.UserError(
                "Expected a database that can be written. "
                f"Received: {metadata_store.without_password(self._source)} ({error})."
            ) from error

    def _latest(self, store: mlmd.MetadataStore) -> list[mlmd.proto.Artifact]:
        context = store.get_context_by_type_and_name(_CONTEXT_TYPE, self._pipeline)
        artifacts = store.get_artifacts_by_context(context.id) if context else []
        ledgers = [
            item
            for item in artifacts
            if item.type == _TYPE and item.state == mlmd.proto.Artifact.LIVE
        ]
        for item in ledgers:
            item.uri = metadata_store.located(item.uri, self._source)
        return sorted(ledgers, key=lambda item: item.id)[-_COUNT:]


def _only_pipeline(source: str) -> str:
    names = recorded_runs.pipelines(source)
    if len(names) != 1:
        raise errors.UserError(
            f"Expected the name of a pipeline, one of {', '.join(names) or 'none yet'}. "
            "Received: pipeline=None."
        )
    return names[0]


def _merged(artifacts: list[mlmd.proto.Artifact]) -> Ledger:
    paths = [storage.path(item.uri) / ledgers.FILE_NAME for item in artifacts]
    present = [path for path in paths if storage.exists(path)]
    if paths and not present:
        _LOGGER.warning("The ledgers are gone, the last one from %s.", paths[-1])
    return Ledger().merge(*map(Ledger.read, present))
