"""A loopback stand-in for the API server of Kubeflow Pipelines, with its rules.

It refuses what the real one refuses: specs by the rules of `tfx_perf.kubeflow.lint`, names that
are taken, missing parameters, requests without the token. It can be told to fail.
"""

import email
import email.policy
import json

import loopback
import yaml
from loopback import Refused

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

    def running(self):
        """Serves on a free port; the context is the address."""
        return loopback.serving(self._answer)

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

    def _answer(self, request):
        path = request.path.removeprefix(API)
        self.requests.append(f"{request.method} {path}")
        if self.failures:
            raise Refused(self.failures.pop(0), "try again later")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Refused(401, "Request header error: there is no user identity header")
        if request.method == "GET":
            return self._get(path, request.query)
        if "upload" in path:
            return self._upload(path, request)
        return self._create(path, json.loads(request.body))

    def _get(self, path, query):
        parts = path.strip("/").split("/")
        if parts == ["healthz"]:
            return {"multi_user": False}
        if parts == ["pipelines"]:
            return {"pipelines": _matching(self.pipelines, query)}
        if parts == ["experiments"]:
            return {"experiments": _matching(self.experiments, query)}
        if parts[0] == "pipelines" and parts[2:] == ["versions"]:
            versions = [each for each in self.versions.values() if each["pipeline_id"] == parts[1]]
            newest = sorted(versions, key=lambda each: each["created_at"], reverse=True)
            return {"pipeline_versions": newest}
        if parts[0] == "runs" and parts[1] in self.runs:
            outcome = self.outcome.pop(0) if len(self.outcome) > 1 else self.outcome[0]
            return {**self.runs[parts[1]], **outcome}
        raise Refused(404, f"{path} not found")

    def _upload(self, path, request):
        query, kind = request.query, request.headers["Content-Type"].encode()
        content = b"Content-Type: " + kind + b"\r\n\r\n" + request.body
        (part,) = email.message_from_bytes(content, policy=email.policy.HTTP).iter_parts()
        documents = list(yaml.safe_load_all(part.get_payload(decode=True)))
        problems = lint.problems(documents)
        if problems:
            raise Refused(400, f"Invalid input error: {problems[0]}")
        if path.endswith("upload_version"):
            taken = {
                each["display_name"]
                for each in self.versions.values()
                if each["pipeline_id"] == query["pipelineid"]
            }
            if query["name"] in taken:
                raise Refused(409, f"the version name {query['name']} already exists")
            return self.add_version(query["pipelineid"], query["name"], documents)
        if query["name"] in {each["display_name"] for each in self.pipelines.values()}:
            raise Refused(409, f"the pipeline name {query['name']} already exists")
        pipeline_id = f"pipeline-{len(self.pipelines) + 1}"
        self.pipelines[pipeline_id] = {"pipeline_id": pipeline_id, "display_name": query["name"]}
        self.add_version(pipeline_id, query["name"], documents)
        return self.pipelines[pipeline_id]

    def _create(self, path, document):
        store, key = {
            "/experiments": (self.experiments, "experiment_id"),
            "/runs": (self.runs, "run_id"),
            "/recurringruns": (self.recurring, "recurring_run_id"),
        }[path]
        if path != "/experiments":
            self._check_parameters(document)
        number = f"{key.removesuffix('_id')}-{len(store) + 1}"
        store[number] = {**document, key: number}
        return store[number]

    def _check_parameters(self, document):
        version = self.versions[document["pipeline_version_reference"]["pipeline_version_id"]]
        root = version["pipeline_spec"]["pipeline_spec"]["root"]
        given = document["runtime_config"].get("parameters", {})
        for name, definition in root.get("inputDefinitions", {}).get("parameters", {}).items():
            may_lack = "defaultValue" in definition or definition.get("isOptional")
            if name not in given and not may_lack:
                raise Refused(400, f"parameter {name} is not optional, yet has no value")


def _matching(store, query):
    wanted = json.loads(query.get("filter", "{}")).get("predicates", [])
    found = []
    for each in store.values():
        value = next((item.get("stringValue", item.get("string_value")) for item in wanted), None)
        if value in (None, each["display_name"]):
            found.append(each)
    return found
