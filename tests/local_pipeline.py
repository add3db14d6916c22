"""A pipeline in a folder that is run again and again, by TFX's own runner."""

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx import v1 as tfx


class LocalPipeline:
    """Runs pipelines with one ML Metadata, and says what is recorded there.

    Args:
        root: the folder.
        connection: of ML Metadata; None for a SQLite file in the folder.
    """

    def __init__(self, root, *, connection=None):
        self._root = root
        sqlite = tfx.orchestration.metadata.sqlite_metadata_connection_config
        self._connection = connection or sqlite(str(root / "metadata.sqlite"))

    @property
    def store(self):
        return metadata_store.MetadataStore(self._connection)

    def run(self, components, *, enable_cache=True):
        tfx.orchestration.LocalDagRunner().run(
            tfx.dsl.Pipeline(
                pipeline_name="test",
                pipeline_root=str(self._root / "artifacts"),
                components=components,
                metadata_connection_config=self._connection,
                enable_cache=enable_cache,
            )
        )

    def last(self, component):
        """Returns the state of a component's last execution, and what it has put out."""
        store = self.store
        executions = store.get_executions_by_type(component.get_class_type())
        execution = max(executions, key=lambda item: item.id)
        outputs = [
            event.artifact_id
            for event in store.get_events_by_execution_ids([execution.id])
            if event.type == mlmd.Event.OUTPUT
        ]
        state = mlmd.Execution.State.Name(execution.last_known_state)
        return state, store.get_artifacts_by_id(outputs)
