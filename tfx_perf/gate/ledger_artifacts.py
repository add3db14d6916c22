"""The ledger in ML Metadata: the `PerfLedger` artifacts of a pipeline."""

from __future__ import annotations

import importlib.util
import logging

from tfx_perf import cache_key, errors, storage
from tfx_perf.gate import ledger as ledgers
from tfx_perf.gate.ledger import Ledger
from tfx_perf.mlmd import metadata_store, recorded_runs

if importlib.util.find_spec("ml_metadata"):
    from ml_metadata import errors as mlmd_errors
    from ml_metadata.metadata_store.metadata_store import MetadataStore
    from ml_metadata.proto import metadata_store_pb2 as mlmd

_LOGGER = logging.getLogger(__name__)

_TYPE = "tfx_perf.PerfLedger"
EXECUTION_TYPE = "tfx_perf.Acts"
"""Type of the executions with which people decide."""

_OUTPUT_KEY = "updated_ledger"  # as PerfEvaluator's
_CONTEXT_TYPE = "pipeline"
_COUNT = 10  # as many as latest_ledger() resolves


class LedgerArtifacts:
    """Reads what `latest_ledger()` resolves in a pipeline's next run, and adds to it.

    What is added becomes an artifact of its own, the output of an execution of its own in the
    pipeline's context. The artifacts' folders must be local.

    Example:
        >>> LedgerArtifacts("metadata.sqlite", pipeline="taxi").read().entries
    """

    def __init__(self, source: str, *, pipeline: str | None) -> None:
        """Finds the pipeline.

        Args:
            source: see `metadata_store.open_store`.
            pipeline: its name; None for the only one there.

        Raises:
            UserError: the database cannot be opened, or has none or several pipelines.
        """
        self._source = source
        self._pipeline = pipeline or _only_pipeline(source)

    def read(self) -> Ledger:
        """Returns the merge of the last ledgers; those whose files are gone are left out.

        Raises:
            UserError: the database cannot be opened, or a ledger is damaged.
        """
        return _merged(self._latest(metadata_store.open_store(self._source)))

    def add(self, ledger: Ledger) -> None:
        """Publishes the merge of the last ledgers and this one.

        Args:
            ledger: the runs and acts to add.

        Raises:
            UserError: the database cannot be opened or written, the pipeline has no ledger
                yet, a ledger is damaged, or its folder cannot be written.
        """
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
        try:
            storage.make_folder(folder)
            merged.write(folder / ledgers.FILE_NAME)
        except OSError as error:
            raise errors.UserError(
                "Expected a folder that can be written. "
                f"Received: path={folder} ({error.strerror or error})."
            ) from error
        execution = mlmd.Execution(
            type_id=store.put_execution_type(mlmd.ExecutionType(name=EXECUTION_TYPE)),
            last_known_state=mlmd.Execution.COMPLETE,
        )
        for key in ("kind", "run_id", "who", "reason"):
            said = "; ".join(str(getattr(act, key)) for act in ledger.acts)
            execution.custom_properties[key].string_value = said
        event = mlmd.Event(type=mlmd.Event.OUTPUT)
        event.path.steps.add().key = _OUTPUT_KEY
        event.path.steps.add().index = 0
        artifact = mlmd.Artifact(
            type_id=latest[-1].type_id, uri=str(folder), state=mlmd.Artifact.LIVE
        )
        context = store.get_context_by_type_and_name(_CONTEXT_TYPE, self._pipeline)
        try:
            store.put_execution(execution, [(artifact, event)], [context])
        except mlmd_errors.StatusError as error:
            raise errors.UserError(
                "Expected a database that can be written. "
                f"Received: {metadata_store.without_password(self._source)} ({error})."
            ) from error

    def _latest(self, store: MetadataStore) -> list[mlmd.Artifact]:
        context = store.get_context_by_type_and_name(_CONTEXT_TYPE, self._pipeline)
        artifacts = store.get_artifacts_by_context(context.id) if context else []
        found = [
            item
            for item in artifacts
            if item.type == _TYPE and item.state == mlmd.Artifact.LIVE
        ]
        for item in found:
            item.uri = metadata_store.located(item.uri, self._source)
        return sorted(found, key=lambda item: item.id)[-_COUNT:]


def _only_pipeline(source: str) -> str:
    found = recorded_runs.pipelines(source)
    if len(found) != 1:
        raise errors.UserError(
            f"Expected the name of a pipeline, one of {', '.join(found) or 'none yet'}. "
            "Received: pipeline=None."
        )
    return found[0]


def _merged(artifacts: list[mlmd.Artifact]) -> Ledger:
    paths = [storage.path(item.uri) / ledgers.FILE_NAME for item in artifacts]
    found = [path for path in paths if storage.exists(path)]
    if paths and not found:
        _LOGGER.warning("The ledgers are gone, the last one from %s.", paths[-1])
    return Ledger().merge(*map(Ledger.read, found))
