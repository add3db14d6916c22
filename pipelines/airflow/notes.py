"""What a finished node has to say to whoever looks at Airflow's UI."""

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from tfx_perf.pipelines import remarks


def note_on(store: metadata_store.MetadataStore, execution: mlmd.Execution) -> str:
    """Returns one line: whether it came from cache, a gate's decision, remarks, where reports are.

    Args:
        store: ML Metadata.
        execution: a successful one.
    """
    said = ["taken from cache"] if execution.last_known_state == mlmd.Execution.CACHED else []
    outputs = remarks.outputs_of(store, execution.id)
    said += [*remarks.decisions(outputs), *remarks.remarks(outputs), *remarks.reports(outputs)]
    return " ".join("; ".join(said).split())
