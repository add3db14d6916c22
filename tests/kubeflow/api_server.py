"""A loopback stand-in for the API server of Kubeflow Pipelines, with its rules.

It refuses what the real one refuses: specs by the rules of `tfx_perf.kubeflow.lint`, names that
are taken, missing parameters, requests without the token. It can be told to fail.
"""

import contextlib
import email
import email.policy
import http.server
import json
import threading
import urllib.parse

import yaml

from tfx_perf.kubeflow import lint

API = "/apis/v2beta1"


class ApiServer:
    """What the server knows; `failures` are the status codes of the next answers."""

    def __init__(self, token=None):
        self.token = token
        self.failures = []
        self.requests = []
        self.pipelines, self.versions, self.runs = {}, {}, {}
        self.experiments, self.recurring = {}, {}
        self.outcome = [{"state": "RUNNING"}, {"state": "SUCCEEDED"}]

    @contextlib.contextmanager
    def running(self):
        """Serves on a free port; yields the address."""

        class Handler(_Handler):
            api = self

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def add_version(self, pipeline_id, name, documents):
        number = len(self.versions) + 1
        spec = {"pipeline_spec": documents[0], "platform_spec": (documents[1:] or [None])[0]}
        self.versions[f"version-{number}"] = {
            "pipeline_id": pipeline_id,
            "pipeline_version_id": f"version-{number}",
            "display_name": name,
            "created_at": f"2026-01-01T00:00:{number:02d}Z",
            "pipeline_spec": spec,
        }
        return self.versions[f"version-{number}"]


class _Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class _Handler(http.server.BaseHTTPRequestHandler):
    api = None

    def log_message(self, *_):
        """Says nothing."""

    def do_GET(self):  # noqa: N802
        self._answer("GET")

    def do_POST(self):  # noqa: N802
        self._answer("POST")

    def _answer(self, method):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urllib.parse.urlparse(self.path)
        query = {key: values[0] for key, values in urllib.parse.parse_qs(url.query).items()}
        path = url.path.removeprefix(API)
        self.api.requests.append(f"{method} {path}")
        try:
            status, document = 200, self._result(method, path, query, body)
        except _Refused as refused:
            status, document = refused.status, {"error": "refused", "message": str(refused)}
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _result(self, method, path, query, body):
        if self.api.failures:
            raise _Refused(self.api.failures.pop(0), "try again later")
        if self.api.token and self.headers.get("Authorization") != f"Bearer {self.api.token}":
            raise _Refused(401, "Request header error: there is no user identity header")
        if method == "GET":
            return self._get(path, query)
        if "upload" in path:
            return self._upload(path, query, body)
        return self._create(path, json.loads(body))

    def _get(self, path, query):
        api = self.api
        parts = path.strip("/").split("/")
        if parts == ["healthz"]:
            return {"multi_user": False}
        if parts == ["pipelines"]:
            return {"pipelines": _matching(api.pipelines, query)}
        if parts == ["experiments"]:
            return {"experiments": _matching(api.experiments, query)}
        if parts[0] == "pipelines" and parts[2:] == ["versions"]:
            versions = [each for each in api.versions.values() if each["pipeline_id"] == parts[1]]
            newest = sorted(versions, key=lambda each: each["created_at"], reverse=True)
            return {"pipeline_versions": newest}
        if parts[0] == "runs" and parts[1] in api.runs:
            outcome = api.outcome.pop(0) if len(api.outcome) > 1 else api.outcome[0]
            return {**api.runs[parts[1]], **outcome}
        raise _Refused(404, f"{path} not found")

    def _upload(self, path, query, body):
        api = self.api
        content = b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n" + body
        (part,) = email.message_from_bytes(content, policy=email.policy.HTTP).iter_parts()
        documents = list(yaml.safe_load_all(part.get_payload(decode=True)))
        problems = lint.problems(documents)
        if problems:
            raise _Refused(400, f"Invalid input error: {problems[0]}")
        if path.endswith("upload_version"):
            taken = {
                each["display_name"]
                for each in api.versions.values()
                if each["pipeline_id"] == query["pipelineid"]
            }
            if query["name"] in taken:
                raise _Refused(409, f"the version name {query['name']} already exists")
            return api.add_version(query["pipelineid"], query["name"], documents)
        if query["name"] in {each["display_name"] for each in api.pipelines.values()}:
            raise _Refused(409, f"the pipeline name {query['name']} already exists")
        pipeline_id = f"pipeline-{len(api.pipelines) + 1}"
        api.pipelines[pipeline_id] = {"pipeline_id": pipeline_id, "display_name": query["name"]}
        api.add_version(pipeline_id, query["name"], documents)
        return api.pipelines[pipeline_id]

    def _create(self, path, document):
        api = self.api
        store, key = {
            "/experiments": (api.experiments, "experiment_id"),
            "/runs": (api.runs, "run_id"),
            "/recurringruns": (api.recurring, "recurring_run_id"),
        }[path]
        if path != "/experiments":
            self._check_parameters(document)
        number = f"{key.removesuffix('_id')}-{len(store) + 1}"
        store[number] = {**document, key: number}
        return store[number]

    def _check_parameters(self, document):
        version = self.api.versions[document["pipeline_version_reference"]["pipeline_version_id"]]
        root = version["pipeline_spec"]["pipeline_spec"]["root"]
        given = document["runtime_config"].get("parameters", {})
        for name, definition in root.get("inputDefinitions", {}).get("parameters", {}).items():
            if name not in given and "defaultValue" not in definition:
                raise _Refused(400, f"parameter {name} is not optional, yet has no value")


def _matching(store, query):
    wanted = json.loads(query.get("filter", "{}")).get("predicates", [])
    found = []
    for each in store.values():
        value = next(
            (item.get("stringValue", item.get("string_value")) for item in wanted), None
        )
        if value in (None, each["display_name"]):
            found.append(each)
    return found
