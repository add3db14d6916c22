"""What the outputs of a node have to say to whoever looks on: decisions, remarks, reports."""

import os
from collections.abc import Iterable, Iterator, Sequence

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.components.evaluator import constants
from tfx.types import standard_artifacts

from tfx_perf import errors, storage
from tfx_perf.components import artifacts, types
from tfx_perf.gate import explanation
from tfx_perf.gate import record as gate_record
from tfx_perf.report import page as report_page


def outputs_of(
    store: metadata_store.MetadataStore, execution_id: int
) -> list[mlmd.Artifact]:
    """Returns what an execution has put out; not what a resolver passes on."""
    ids = [
        event.artifact_id
        for event in store.get_events_by_execution_ids([execution_id])
        if event.type == mlmd.Event.OUTPUT
    ]
    return store.get_artifacts_by_id(ids)


def decisions(outputs: Iterable[mlmd.Artifact]) -> Iterator[str]:
    """Yields e.g. `blessed: 15 of 17 checks ...` or `REFUSED by 2 of 17 checks ...`."""
    for artifact in outputs:
        properties = artifact.custom_properties
        # ExampleAnomalies has a text of that name.
        if properties[constants.ARTIFACT_PROPERTY_BLESSED_KEY].HasField("int_value"):
            blessed = properties[constants.ARTIFACT_PROPERTY_BLESSED_KEY].int_value
            message = properties[constants.ARTIFACT_PROPERTY_BLESSING_MESSAGE_KEY].string_value
            verdict = "blessed" if blessed else "REFUSED"
            if message.lower().startswith(verdict.lower()):  # PerfEvaluator's says it, too
                yield verdict + message[len(verdict) :]
            else:
                yield f"{verdict}: {message}" if message else verdict


def pushes(outputs: Iterable[mlmd.Artifact]) -> Iterator[str]:
    """Yields whether Pusher has pushed a model."""
    for artifact in outputs:
        if artifact.type == standard_artifacts.PushedModel.TYPE_NAME:
            pushed = artifact.custom_properties["pushed"].int_value
            yield "pushed" if pushed else "pushed nothing: a blessing is missing"


def remarks(outputs: Iterable[mlmd.Artifact]) -> Iterator[str]:
    """Yields what went wrong in our components though the node succeeded, a line each."""
    for artifact in outputs:
        remark = artifact.custom_properties[artifacts.REMARK].string_value
        if remark:
            yield remark


def outcome(outputs: Iterable[mlmd.Artifact], *, database: str) -> Sequence[str]:
    """Returns what one of our components found, for the end of a run; empty of other components.

    The headline of its report, of PerfEvaluator also the figures and what to do.

    Args:
        outputs: of its node.
        database: path of the SQLite file of ML Metadata; empty if it is on a server, whose
            password nobody should see.
    """
    for artifact in outputs:
        headline = artifact.custom_properties[artifacts.HEADLINE].string_value
        if artifact.type == types.PerfEvaluation.TYPE_NAME:
            try:
                file = storage.path(artifact.uri) / gate_record.FILE_NAME
                decision = gate_record.GateRecord.read(file)
                return list(explanation.lines(decision, database=database))
            except errors.UserError:  # removed, or of another version
                return [headline]
        if headline:
            return [headline]
    return []


def reports(outputs: Iterable[mlmd.Artifact]) -> Iterator[str]:
    """Yields where the reports are."""
    for artifact in outputs:
        page = os.path.join(artifact.uri, report_page.FILE_NAME)
        if _is_there(page):
            yield f"report: {page}"


def _is_there(page: str) -> bool:
    try:
        return storage.exists(page)
    except errors.UserError:  # other components' artifacts may lie where nothing of ours can look
        return False
