"""What a finished node has to say to whoever looks at Airflow's UI."""

import os

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.components.evaluator import constants

from tfx_perf import errors, storage
from tfx_perf.components import artifacts


def note_on(store: metadata_store.MetadataStore, execution: mlmd.Execution) -> str:
    """Returns one line: whether it came from cache, a gate's decision, where the report is.

    Args:
        store: ML Metadata.
        execution: a successful one.
    """
    remarks = ["taken from cache"] if execution.last_known_state == mlmd.Execution.CACHED else []
    ids = [
        event.artifact_id
        for event in store.get_events_by_execution_ids([execution.id])
        if event.type == mlmd.Event.OUTPUT  # not what a resolver passes on
    ]
    for artifact in store.get_artifacts_by_id(ids):
        properties = artifact.custom_properties
        # ExampleAnomalies has a text of that name.
        if properties[constants.ARTIFACT_PROPERTY_BLESSED_KEY].HasField("int_value"):
            blessed = properties[constants.ARTIFACT_PROPERTY_BLESSED_KEY].int_value
            message = properties[constants.ARTIFACT_PROPERTY_BLESSING_MESSAGE_KEY].string_value
            verdict = "blessed" if blessed else "REFUSED"
            remarks.append(f"{verdict}: {message}" if message else verdict)
        page = os.path.join(artifact.uri, artifacts.REPORT_FILE)
        if _is_there(page):
            remarks.append(f"report: {page}")
    return " ".join("; ".join(remarks).split())


def _is_there(page: str) -> bool:
    try:
        return storage.exists(page)
    except errors.UserError:  # other components' artifacts may lie where nothing of ours can look
        return False
