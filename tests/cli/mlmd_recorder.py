"""Writes runs into ML Metadata the way TFX's launcher does."""

import pathlib
from collections.abc import Mapping, Sequence

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd


class Recorder:
    """A database that runs are recorded in, by contexts, executions, artifacts and events."""

    def __init__(self, path: pathlib.Path) -> None:
        connection = mlmd.ConnectionConfig()
        connection.sqlite.filename_uri = str(path)
        connection.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
        self._store = metadata_store.MetadataStore(connection)

    def execute(
        self,
        node: str,
        *,
        pipeline: str = "taxi",
        run: str = "run-1",
        state: int = mlmd.Execution.COMPLETE,
        inputs: Sequence[mlmd.Artifact] = (),
        outputs: Mapping[str, dict] | None = None,
    ) -> list[mlmd.Artifact]:
        """Records one execution.

        Args:
            node: the component's id.
            pipeline: name of the pipeline.
            run: id of the run.
            state: the execution's last known state.
            inputs: artifacts that an earlier call returned.
            outputs: artifact type to custom properties, and `uri` if it matters.

        Returns:
            The output artifacts.
        """
        store = self._store
        pipeline_context = self._context("pipeline", pipeline)
        run_context = self._context("pipeline_run", run)
        node_context = self._context("node", f"{pipeline}.{node}")
        parents = store.get_parent_contexts_by_context(run_context.id)
        if not parents:
            edge = mlmd.ParentContext(child_id=run_context.id, parent_id=pipeline_context.id)
            store.put_parent_contexts([edge])
        type_id = store.put_execution_type(mlmd.ExecutionType(name=f"components.{node}"))
        execution = mlmd.Execution(type_id=type_id, last_known_state=state)
        made = [self._artifact(*item) for item in (outputs or {}).items()]
        edges = [(item, mlmd.Event(type=mlmd.Event.INPUT)) for item in inputs]
        edges += [(item, mlmd.Event(type=mlmd.Event.OUTPUT)) for item in made]
        _, artifact_ids, _ = store.put_execution(
            execution, edges, [pipeline_context, run_context, node_context]
        )
        return store.get_artifacts_by_id(artifact_ids[len(inputs) :])

    def _context(self, type_name: str, name: str) -> mlmd.Context:
        type_id = self._store.put_context_type(mlmd.ContextType(name=type_name))
        found = self._store.get_context_by_type_and_name(type_name, name)
        if found is None:
            self._store.put_contexts([mlmd.Context(type_id=type_id, name=name)])
            found = self._store.get_context_by_type_and_name(type_name, name)
        return found

    def _artifact(self, type_name: str, properties: dict) -> mlmd.Artifact:
        type_id = self._store.put_artifact_type(mlmd.ArtifactType(name=type_name))
        uri = properties.get("uri", f"/nowhere/{type_name}")
        artifact = mlmd.Artifact(type_id=type_id, uri=uri, state=mlmd.Artifact.LIVE)
        for key, value in properties.items():
            if key == "uri":
                continue
            field = {float: "double_value", int: "int_value", str: "string_value"}[type(value)]
            setattr(artifact.custom_properties[key], field, value)
        return artifact
