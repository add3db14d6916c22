"""The loopback stand-in of Kubeflow Pipelines, with lists of runs and deletions."""

import api_server


class ListingServer(api_server.ApiServer):
    """Answers what `tfx pipeline` and `tfx run` ask beside uploads and runs."""

    def handle(self, method: str, path: str) -> dict | None:
        """Returns the answer; None for what the stand-in itself answers."""
        parts = path.strip("/").split("/")
        if (method, parts) == ("GET", ["runs"]):
            for number, run in enumerate(self.runs.values()):
                run.setdefault("created_at", f"2026-01-01T00:00:{number:02d}Z")
            return {"runs": list(self.runs.values())}
        if method == "POST" and parts[-1].endswith(":terminate"):
            self.runs[parts[1].partition(":")[0]]["state"] = "CANCELING"
            return {}
        if method != "DELETE":
            return None
        stores = {"pipelines": self.pipelines, "runs": self.runs, "versions": self.versions}
        if parts[0] == "pipelines" and len(parts) == 2:
            kept = [each for each in self.versions.values() if each["pipeline_id"] == parts[1]]
            if kept:  # as the real server does
                raise api_server._Refused(400, f"{parts[1]} has {len(kept)} pipeline versions")
        if stores[parts[-2]].pop(parts[-1], None) is None:
            raise api_server._Refused(404, f"{path} not found")
        return {}


class _Handler(api_server._Handler):
    def do_DELETE(self):  # noqa: N802
        self._answer("DELETE")

    def _result(self, method, path, query, body):
        answer = self.api.handle(method, path)
        if answer is not None:
            return answer
        result = super()._result(method, path, query, body)
        if path.startswith("/runs"):
            result.setdefault("created_at", "2026-01-01T00:00:00Z")
        return result


def serve(server: ListingServer, monkeypatch):
    """Returns a context manager with the server's address."""
    monkeypatch.setattr(api_server, "_Handler", _Handler)
    return server.running()
