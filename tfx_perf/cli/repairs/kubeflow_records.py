"""What a Kubeflow Pipelines server holds: lists, and what is taken away."""

from collections.abc import Callable, Iterator
from typing import Any

from tfx_perf import errors
from tfx_perf.kubeflow.connection import Connection

_PAGE_SIZE = 100


class KubeflowRecords:
    """Pipelines and runs on a server, by name and id.

    Args:
        connection: to the server.
    """

    def __init__(self, connection: Connection):
        """Asks nothing yet."""
        self._connection = connection
        self._client = connection.client

    def pipelines(self) -> list[str]:
        """Returns the names of all pipelines."""
        return [item.display_name for item in self._all(self._client.list_pipelines, "pipelines")]

    def has(self, name: str) -> bool:
        """Returns whether there is a pipeline of that name."""
        return self._connection.read(self._client.get_pipeline_id, name) is not None

    def pipeline_id(self, name: str) -> str:
        """Returns the id of a pipeline.

        Raises:
            UserError: the server has none of that name.
        """
        found = self._connection.read(self._client.get_pipeline_id, name)
        if found is None:
            raise errors.UserError(
                "Expected a pipeline that the server has. "
                f"Received: pipeline_name={name}; create it first."
            )
        return found

    def delete_pipeline(self, name: str) -> None:
        """Deletes a pipeline; its versions first, with which the server keeps it.

        Raises:
            UserError: the server has none of that name.
        """
        pipeline_id = self.pipeline_id(name)
        versions = list(
            self._all(self._client.list_pipeline_versions, "pipeline_versions", pipeline_id)
        )
        for version in versions:
            self._connection.create(
                self._client.delete_pipeline_version, pipeline_id, version.pipeline_version_id
            )
        self._connection.create(self._client.delete_pipeline, pipeline_id)

    def runs(self, name: str) -> list[Any]:
        """Returns the runs of a pipeline, the newest first.

        Raises:
            UserError: the server has no pipeline of that name.
        """
        pipeline_id = self.pipeline_id(name)
        every = self._all(self._client.list_runs, "runs", sort_by="created_at desc")
        return [
            run
            for run in every
            if run.pipeline_version_reference
            and run.pipeline_version_reference.pipeline_id == pipeline_id
        ]

    def run(self, run_id: str) -> Any:
        """Returns a run.

        Raises:
            UserError: the server has none with that id.
        """
        return self._connection.read(self._client.get_run, run_id)

    def delete_run(self, run_id: str) -> None:
        """Deletes the record of a run.

        Raises:
            UserError: the server has none with that id.
        """
        self._connection.create(self._client.delete_run, run_id)

    def terminate_run(self, run_id: str) -> None:
        """Stops a run.

        Raises:
            UserError: the server has none with that id.
        """
        self._connection.create(self._client.terminate_run, run_id)

    def link(self, run_id: str) -> str:
        """Returns the address of a run's page."""
        return f"{self._connection.ui_address}/#/runs/details/{run_id}"

    def _all(
        self, listing: Callable[..., Any], key: str, *arguments: Any, **keywords: Any
    ) -> Iterator[Any]:
        """Yields the items of all pages."""
        token = ""
        while True:
            page = self._connection.read(
                listing, *arguments, page_token=token, page_size=_PAGE_SIZE, **keywords
            )
            yield from getattr(page, key) or ()
            token = page.next_page_token
            if not token:
                return
