"""Has TFX run a node again that succeeded though it had not found what it is for."""

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.dsl.compiler import constants
from tfx.dsl.components.base import base_driver
from tfx.orchestration import metadata
from tfx.orchestration.portable import base_driver as portable_driver
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import driver_output_pb2

from tfx_perf.components import artifacts

_NODE = constants.NODE_CONTEXT_TYPE_NAME
PROPERTY = "failed_before"
"""Of an execution: how many on the same inputs have found nothing, if any have."""


class Driver(base_driver.BaseDriver, portable_driver.BaseDriver):
    """Adds to the properties of a node how often it has failed on the same inputs.

    TFX takes an execution from its cache if one with the same inputs and properties has succeeded.
    Our nodes succeed, too, where a process of theirs was killed or hung, or its time ended too
    early: the pipeline goes on without what they were to find. With another number that execution
    is not found in the cache, and the next one that succeeds is.
    """

    def __init__(self, connection: metadata.Metadata) -> None:
        """Takes the connection to ML Metadata, as TFX's launcher gives it."""
        portable_driver.BaseDriver.__init__(self, connection)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """Returns the number, if it is not 0.

        Args:
            execution_info: of the execution that may be taken from the cache.
        """
        with self._mlmd_connection as connection:
            count = _failures(connection.store, execution_info)
        output = driver_output_pb2.DriverOutput()
        if count:
            output.exec_properties[PROPERTY].int_value = count
        return output


def _failures(
    store: metadata_store.MetadataStore, execution_info: data_types.ExecutionInfo
) -> int:
    """Returns how many outputs of the node say that it may find more, made of the same inputs."""
    node = f"{execution_info.pipeline_info.id}.{execution_info.pipeline_node.node_info.id}"
    context = store.get_context_by_type_and_name(_NODE, node)
    if context is None:
        return 0
    own = {item.id for items in execution_info.input_dict.values() for item in items}
    ids = [execution.id for execution in store.get_executions_by_context(context.id)]
    read: dict[int, set[int]] = {id_: set() for id_ in ids}
    made: dict[int, set[int]] = {id_: set() for id_ in ids}
    for event in store.get_events_by_execution_ids(ids):
        kind = {mlmd.Event.INPUT: read, mlmd.Event.OUTPUT: made}.get(event.type)
        if kind is not None:
            kind[event.execution_id].add(event.artifact_id)
    of_these = {item for id_ in ids if read[id_] == own for item in made[id_]}
    found = store.get_artifacts_by_id(list(of_these))
    return sum(artifacts.MAY_PASS in item.custom_properties for item in found)
