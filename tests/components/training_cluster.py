"""A loopback stand-in for a cluster with Kubeflow's training operators.

It refuses what the API server and the operators refuse, starts each worker as a process of this
machine with what the manifest's own command runs, and sets the job's status by how these end.
"""

import contextlib
import datetime
import functools
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import uuid

import loopback
import yaml
from kubernetes_types import problems
from loopback import Refused

from tests.ports import free_port
from tfx_perf import isolate
from tfx_perf.components.optimized_trainer import worker_training
from tfx_perf.distribute import worker
from tfx_perf.distribute.kubernetes import job_api, job_run
from tfx_perf.isolate import forks

_ROOT = pathlib.Path(__file__).parents[2]
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KINDS = {
    ("kubeflow.org", "v1", "tfjobs"): "TFJob",
    ("trainer.kubeflow.org", "v1alpha1", "trainjobs"): "TrainJob",
}
_RUN_POLICY = {
    "cleanPodPolicy", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished",
    "schedulingPolicy", "suspend", "managedBy",
}  # fmt: skip
_GRACE_SECONDS = 5
_LINGER_SECONDS = 1  # how long a pod runs after its deletion


def send_signal(process, number):
    if isinstance(process, subprocess.Popen):
        process.send_signal(number)
    elif process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process._pid, number)


class Job:
    """A job and its processes.

    Attributes:
        tasks: (kind, index) of each process, as the operator labels its pod.
        restarts: how often workers were started again.
        events: reason and message of what was said of the job.
    """

    def __init__(self, manifest, starts, tasks, logs, *, lag_seconds):
        self.manifest, self.starts, self.tasks, self.logs = manifest, starts, tasks, logs
        self.processes = [start() for start in starts]
        self.restarts = 0
        self.kind, self.name = manifest["kind"], manifest["metadata"]["name"]
        self.outcome = None
        self.deleted, self.events = None, []
        self.deleting = {}  # index of a process to when its pod was deleted
        self.uid = str(uuid.uuid4())
        self.uids = [str(uuid.uuid4()) for _ in starts]
        self.began, self.changed, self.lag_seconds = time.monotonic(), None, lag_seconds

    @property
    def codes(self):
        return [process.poll() for process in self.processes]

    @property
    def policy(self):
        return self.manifest["spec"].get("runPolicy", {})

    def reconcile(self):
        """Sets the status as the operator does, by its policies of success and restarts.

        For a TFJob as Training Operator v1.9.3 does (`pkg/controller.v1`): it looks at a job when a
        pod has changed, deletes all pods past `backoffLimit` or the deadline, whatever
        `cleanPodPolicy` says, and counts neither the restarts by `ExitCode` nor its own retries.
        """
        if self.deleted and time.monotonic() > self.deleted + _GRACE_SECONDS:
            self.signal(signal.SIGKILL)
        if self.outcome or self.deleted:
            return
        spec, seconds = self.manifest["spec"], time.monotonic() - self.began
        templates = [each["template"] for each in spec.get("tfReplicaSpecs", {}).values()]
        limits = [each["spec"].get("activeDeadlineSeconds") for each in templates]
        if limits and None not in limits and seconds > max(limits):
            self.signal(signal.SIGKILL)  # as the kubelet does
        self.changed = self.changed or (time.monotonic() if any(self.codes) else None)
        if self.changed and time.monotonic() < self.changed + self.lag_seconds:
            return
        self.restart(spec)
        has_chief = "Chief" in spec.get("tfReplicaSpecs", {})
        deadline = spec.get("runPolicy", spec).get("activeDeadlineSeconds")
        is_late = bool(deadline) and seconds > deadline
        failed = sum(bool(code) for code in self.codes)
        is_past = failed and self.policy.get("backoffLimit", 1) < 1
        has_changed = self.kind == "TrainJob" or any(code is not None for code in self.codes)
        if is_past or is_late and has_changed:
            reason = "has reached the specified backoff limit" if is_past else (
                "was active longer than specified deadline"
            )  # fmt: skip
            self.outcome = "Failed", f"Job {self.name} has failed because it {reason}"
            self.clean(range(len(self.codes)))
        elif failed:
            message = f"{self.name} has failed because {failed} Worker replica(s) failed."
            self.outcome = "Failed", f"{self.kind} team/{message}"
        elif all(code == 0 for code in self.codes[: 1 if has_chief else None]):
            self.outcome = "Succeeded", f"{self.kind} team/{self.name} successfully completed."
        if self.outcome:  # cleanPodPolicy: Running
            self.clean(index for index, code in enumerate(self.codes) if code is None)

    def clean(self, indices):
        """Deletes pods; processes that still run get a signal and some time to end."""
        for index in indices:
            code, pod = self.codes[index], self.pod_name(index)
            if code:
                message = f"Pod: team.{pod} exited with code {abs(code)}"
                self.events.append(("ExitedWithCode", message))
            self.deleting.setdefault(index, time.monotonic() if code is None else -math.inf)
            send_signal(self.processes[index], signal.SIGTERM)
            self.events.append(("SuccessfulDeletePod", f"Deleted pod: {pod}"))

    def restart(self, spec):
        """Restarts processes that a signal ended, if the policy says so."""
        policies = {
            name.lower(): each["restartPolicy"]
            for name, each in spec.get("tfReplicaSpecs", {}).items()
        }
        for number, ((kind, _), code) in enumerate(zip(self.tasks, self.codes, strict=True)):
            if policies.get(kind) == "ExitCode" and code is not None and code < 0:
                self.restarts += 1
                self.processes[number] = self.starts[number]()
                self.uids[number] = str(uuid.uuid4())

    def delete(self):
        self.deleted = self.deleted or time.monotonic()
        self.signal(signal.SIGTERM)

    def signal(self, number):
        for process in self.processes:
            send_signal(process, number)

    def document(self):
        types = [("Created", ""), ("Running", f"{self.kind} {self.name} is running.")]
        types = [] if self.kind == "TrainJob" else types
        if self.outcome:
            name, message = self.outcome
            is_complete = self.kind == "TrainJob" and name == "Succeeded"
            types.append(("Complete" if is_complete else name, message))
        conditions = [
            {
                "type": name, "status": "True", "reason": f"{self.kind}{name}", "message": message,
                "lastTransitionTime": _now(),
            }
            for name, message in types
        ]  # fmt: skip
        metadata = {**self.manifest["metadata"], "uid": self.uid, "namespace": "team"}
        metadata |= {"deletionTimestamp": _now()} if self.deleted else {}
        return {**self.manifest, "metadata": metadata, "status": {"conditions": conditions}}

    def pod_name(self, index):
        kind, number = self.tasks[index]
        if self.kind == "TFJob":
            return f"{self.name}-{kind}-{number}"
        return f"{self.name}-node-0-{index}-abcde"

    def pods(self):
        for index, code in enumerate(self.codes):
            deleted = self.deleting.get(index)
            if deleted is not None and time.monotonic() > deleted + _LINGER_SECONDS:
                continue
            kind, number = self.tasks[index]
            labels = {
                "training.kubeflow.org/job-name": self.name,
                "training.kubeflow.org/replica-type": kind,
                "training.kubeflow.org/replica-index": str(number),
            }
            if self.kind == "TrainJob":
                labels = {
                    "jobset.sigs.k8s.io/jobset-name": self.name,
                    "batch.kubernetes.io/job-completion-index": str(index),
                }
            phase = "Running" if code is None else "Failed" if code else "Succeeded"
            state = {"running": {}}
            if code is not None:
                reason = "OOMKilled" if code == -signal.SIGKILL else "Error"
                exit_code = code if code >= 0 else 128 - code
                state = {"terminated": {"exitCode": exit_code, "reason": reason}}
            if code:  # terminationMessagePolicy: FallbackToLogsOnError
                log = self.logs[index].read_text(errors="replace")
                state["terminated"]["message"] = log[-2048:]
            status = {
                "name": "tensorflow", "image": "", "imageID": "", "ready": False,
                "restartCount": 0, "state": state,
            }  # fmt: skip
            metadata = {"name": self.pod_name(index), "uid": self.uids[index], "labels": labels}
            if deleted is not None or self.deleted:
                metadata["deletionTimestamp"] = _now()
            yield (
                index,
                {
                    "metadata": metadata,
                    "spec": {"containers": [{"name": "tensorflow"}]},
                    "status": {"phase": phase, "containerStatuses": [status]},
                },
            )


class TrainingCluster:
    """The cluster.

    Attributes:
        folder: in which the workers are started.
        shared: the folder that they share with who submits a job.
        failures: status codes of the next answers.
        forbidden: resources that the service account may not touch.
        installed: the operators' resources.
        run_policy: what the cluster sets in each TFJob's `runPolicy`.
        lag_seconds: after which the operator sees that a pod has failed.
        stand_ins: worker's index to Python code that runs in the place of its command.
        requests: method and path of all that came.
        pods: other pods that are there, name to uid.
        jobs: those that are there, by name.
        made: all jobs that ever were.
    """

    def __init__(self, folder):
        self.folder, self.shared = folder / "cluster", folder / "shared"
        self.folder.mkdir()
        self.shared.mkdir()
        self.failures, self.forbidden, self.requests = [], set(), []
        self.installed = {"tfjobs", "trainjobs"}
        self.stand_ins, self.pods, self.jobs, self.made = {}, {}, {}, []
        self.run_policy, self.lag_seconds = {}, 0.0
        self.lock, self.containers = threading.RLock(), contextlib.ExitStack()
        runtime = _ROOT / "kubeflow" / "manifests" / "training" / "training_runtime.yaml"
        self.runtimes = {
            each["metadata"]["name"]: each for each in yaml.safe_load_all(runtime.read_text())
        }

    @contextlib.contextmanager
    def running(self):
        """Serves on a free port; yields the path of a kube config."""
        path = self.folder / "kube.yaml"
        with loopback.serving(self._answer) as address:
            context = {"cluster": "here", "user": "me", "namespace": "team"}
            config = {
                "apiVersion": "v1", "kind": "Config", "current-context": "here",
                "clusters": [{"name": "here", "cluster": {"server": address}}],
                "users": [{"name": "me", "user": {"token": "secret"}}],
                "contexts": [{"name": "here", "context": context}],
            }  # fmt: skip
            path.write_text(yaml.safe_dump(config))
            try:
                yield path
            finally:
                for job in self.made:
                    job.signal(signal.SIGKILL)
                self.containers.close()

    def settings(self, kind="TFJob", **settings):
        """Returns the settings `distribution` of a job of two workers."""
        shared = str(self.shared)
        limits = {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}}
        mounts = [{"name": "shared", "mountPath": shared}]
        claim = {"name": "shared", "persistentVolumeClaim": {"claimName": "tfx-perf-shared"}}
        container = {"name": "tensorflow", "resources": limits, "volumeMounts": mounts}
        own, pod = {"image": "example/taxi:1"}, {"containers": [container], "volumes": [claim]}
        if kind == "TrainJob":
            own = {"runtime": "tfx-perf"}
            pod = {"containers": [{"name": "node", "resources": limits}]}
        job = {"kind": kind, "worker_count": 2, "shared_folder": shared, **own, **settings}
        return {"job": {"pod_template": {"spec": pod}, **job}}

    def when_it_runs(self, act):
        """Calls a function once both workers of a job are running."""
        create = self.create

        def then(kind, manifest):
            job = create(kind, manifest)
            threading.Timer(0.5, act).start()
            return job

        self.create = then

    def reconcile(self):
        with self.lock:
            for name, job in list(self.jobs.items()):
                job.reconcile()
                # Kubernetes' garbage collection.
                owners = job.manifest["metadata"].get("ownerReferences", [])
                if owners and not any(each["uid"] in self.pods.values() for each in owners):
                    job.delete()
                if job.deleted and None not in job.codes:
                    del self.jobs[name]

    def create(self, kind, manifest):
        _check_metadata(kind, manifest)
        name = manifest["metadata"]["name"]
        if name in self.jobs:
            raise Refused(409, f'{kind.lower()}s "{name}" already exists')
        containers = self._tf_job(manifest) if kind == "TFJob" else self._train_job(manifest)
        if kind == "TFJob":
            manifest["spec"]["runPolicy"] |= self.run_policy
        job = Job(manifest, *self._starts(name, containers), lag_seconds=self.lag_seconds)
        self.jobs[name] = job
        self.made.append(job)
        return job

    def _tf_job(self, manifest):
        """Yields task, container and environment of each process, as the controller makes them."""
        spec = manifest["spec"]
        _only(spec, {"runPolicy", "successPolicy", "tfReplicaSpecs", "enableDynamicWorker"}, "spec")
        _only(spec["runPolicy"], _RUN_POLICY, "spec.runPolicy")
        _among(spec["runPolicy"].get("cleanPodPolicy"), {None, "All", "Running", "None"})
        _among(spec.get("successPolicy", ""), {"", "AllWorkers"})
        _only(spec["tfReplicaSpecs"], {"Chief", "Worker", "PS", "Evaluator"}, "tfReplicaSpecs")
        containers = {
            name.lower(): _tensorflow(replica) for name, replica in spec["tfReplicaSpecs"].items()
        }
        cluster = {
            name.lower(): [f"localhost:{free_port()}" for _ in range(replica["replicas"])]
            for name, replica in spec["tfReplicaSpecs"].items()
        }
        for kind, hosts in cluster.items():
            for index in range(len(hosts)):
                config = {
                    "cluster": cluster, "task": {"type": kind, "index": index},
                    "environment": "cloud",
                }  # fmt: skip
                yield (kind, index), containers[kind], {"TF_CONFIG": json.dumps(config)}

    def _train_job(self, manifest):
        spec, name = manifest["spec"], manifest["metadata"]["name"]
        allowed = {
            "runtimeRef", "trainer", "initializer", "suspend", "managedBy",
            "activeDeadlineSeconds",
        }  # fmt: skip
        _only(spec, allowed, "spec")
        _only(spec["runtimeRef"], {"apiGroup", "kind", "name"}, "spec.runtimeRef")
        trainer = spec["trainer"]
        allowed = {"image", "command", "args", "env", "numNodes", "resourcesPerNode"}
        _only(trainer, allowed, "spec.trainer")
        found = [
            *problems(trainer["env"], "list[V1EnvVar]", "env"),
            *problems(trainer["resourcesPerNode"], "V1ResourceRequirements", "resourcesPerNode"),
        ]
        if found:
            raise Refused(422, f"TrainJob is invalid: {found}")
        runtime = self.runtimes.get(spec["runtimeRef"]["name"])
        if runtime is None or spec["runtimeRef"]["kind"] != runtime["kind"]:
            raise Refused(403, "admission webhook denied: the training runtime does not exist")
        (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        assert (job["name"], container["name"]) == ("node", "node")
        (hosts,) = [each for each in trainer["env"] if each["name"] == "TFX_PERF_WORKER_HOSTS"]
        count = trainer["numNodes"]
        wanted = [f"{name}-node-0-{index}.{name}:2222" for index in range(count)]
        assert hosts["value"] == ",".join(wanted)
        here = ",".join(f"localhost:{free_port()}" for _ in range(count))
        merged = {**container, "command": trainer["command"], "env": trainer["env"]}
        for index in range(count):
            added = {"JOB_COMPLETION_INDEX": str(index), "TFX_PERF_WORKER_HOSTS": here}
            yield ("worker", index), merged, added

    def _starts(self, name, containers):
        """Returns the commands of the processes, their tasks and their logs."""
        starts, tasks, logs = [], [], []
        for index, (task, container, added) in enumerate(containers):
            variables = container.get("env", ())
            given = {each["name"]: each["value"] for each in variables if "value" in each}
            command = container["command"]
            if index in self.stand_ins:
                folder = command[command.index("--job") + 1]
                command = ["python", "-c", self.stand_ins[index], folder]
            tasks.append(task)
            logs.append(self.folder / f"{name}-{len(self.made)}-{index}.log")
            environment = {**_environment(), **given, **added}
            starts.append(functools.partial(self._start, command, environment, logs[-1]))
        return starts, tasks, logs

    def _start(self, command, environment, path):
        _, option, module, *arguments = command
        if (option, module) == ("-m", worker.__name__):
            given = {
                "arguments": arguments, "environment": environment, "folder": str(self.folder)
            }  # fmt: skip
            target = f"{__name__}:{contained.__name__}"
            return self.containers.enter_context(
                isolate.started(target, given, log_path=path, is_forked=True)
            )
        with path.open("wb") as log:
            return subprocess.Popen(
                command, env=environment, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def _answer(self, request):
        with self.lock:
            self.requests.append(f"{request.method} {request.path}")
            if self.failures:
                raise Refused(self.failures.pop(0), "etcdserver: request timed out")
            if request.headers.get("Authorization") != "Bearer secret":
                raise Refused(401, "Unauthorized")
            self.reconcile()
            parts = request.path.strip("/").split("/")
            if parts[:4] == ["api", "v1", "namespaces", "team"]:
                if parts[4] in self.forbidden:
                    raise Refused(403, f"{parts[4]} is forbidden")
                if parts[4] == "events":
                    return self._events(request.query["fieldSelector"])
                return self._pods(parts[5:], request.query)
            return self._jobs(request, parts)

    def _jobs(self, request, parts):
        _, group, version, _, namespace, plural, *name = parts
        kind = _KINDS.get((group, version, plural))
        if kind is None or plural not in self.installed:
            raise Refused(404, "404 page not found")
        if plural in self.forbidden:
            raise Refused(403, f"{plural}.{group} is forbidden: User cannot touch them")
        assert namespace == "team"
        if request.method == "POST":
            return self.create(kind, json.loads(request.body)).document()
        job = self.jobs.get(name[0])
        if job is None or job.kind != kind:
            raise Refused(404, f'{plural}.{group} "{name[0]}" not found')
        if request.method == "DELETE":
            assert request.query["propagationPolicy"] == "Foreground"
            job.delete()
        if request.method == "PATCH":
            assert request.headers["Content-Type"] == "application/merge-patch+json"
            change = json.loads(request.body)
            _only(change, {"metadata"}, "job")
            metadata = {**job.manifest["metadata"], **change["metadata"]}
            _check_metadata(kind, {**job.manifest, "metadata": metadata})
            job.manifest["metadata"] = metadata
        return job.document()

    def _events(self, selector):
        wanted = dict(each.split("=") for each in selector.split(","))
        items = [
            {
                "metadata": {"name": f"{job.name}.{number}"}, "reason": reason, "message": message,
                "involvedObject": {"kind": job.kind, "name": job.name}, "lastTimestamp": _now(),
            }
            for job in self.jobs.values()
            if wanted == {"involvedObject.kind": job.kind, "involvedObject.name": job.name}
            for number, (reason, message) in enumerate(job.events)
        ]  # fmt: skip
        return {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items}

    def _pods(self, rest, query):
        pods = [(pod, job, n) for job in self.jobs.values() for n, pod in job.pods()]
        if len(rest) == 1:
            if rest[0] not in self.pods:
                raise Refused(404, f'pods "{rest[0]}" not found')
            metadata = {"name": rest[0], "uid": self.pods[rest[0]]}
            return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}
        if rest:
            name, what = rest
            assert what == "log"
            found = [(job, n) for pod, job, n in pods if pod["metadata"]["name"] == name]
            if not found:
                raise Refused(404, f"pods {name} not found")
            ((job, number),) = found
            assert query["container"] == {"TFJob": "tensorflow", "TrainJob": "node"}[job.kind]
            lines = job.logs[number].read_text(errors="replace").splitlines(keepends=True)
            return "".join(lines[-int(query["tailLines"]) :])
        key, _, value = query["labelSelector"].partition("=")
        items = [pod for pod, _, _ in pods if pod["metadata"]["labels"].get(key) == value]
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}


def contained(arguments, environment, folder):
    """Runs the worker's program in a process that has its imports, as a fresh process would."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    code = worker.main(arguments)
    forks.end_as_an_interpreter()
    sys.exit(code)


@contextlib.contextmanager
def at_hand(folder, monkeypatch):
    """Yields a cluster that OptimizedTrainer finds; checks that none of its jobs is left."""
    monkeypatch.setattr(job_api, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(job_api, "_LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(job_run, "_POLL_SECONDS", 0.1)
    monkeypatch.setattr(job_run, "_END_POLL_SECONDS", 0.05)
    # Here, because a server of children ends with the thread that started it.
    isolate.import_early([worker_training.__name__])
    cluster = TrainingCluster(folder)
    with cluster.running() as path:
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield cluster
        cluster.reconcile()
        assert not cluster.jobs
        assert not any(None in job.codes for job in cluster.made)
        assert not list(cluster.shared.glob("*"))


def _tensorflow(replica):
    """Returns the container of a replica that the operator looks for."""
    _only(replica, {"replicas", "restartPolicy", "template"}, "replica")
    _among(replica["restartPolicy"], {"Always", "OnFailure", "Never", "ExitCode"})
    found = list(problems(replica["template"], "V1PodTemplateSpec", "template"))
    if found:
        raise Refused(422, f"TFJob is invalid: {found}")
    containers = replica["template"]["spec"]["containers"]
    named = [each for each in containers if each["name"] == "tensorflow"]
    if not named or not all(each.get("image") for each in containers):
        raise Refused(422, "there must be a container named tensorflow, and images")
    return named[0]


def _environment():
    """Returns the image's environment: the program `python`, and the packages."""
    programs = str(pathlib.Path(sys.executable).parent)
    kept = {key: os.environ[key] for key in ("HOME", "LANG", "PYTHONPATH") if key in os.environ}
    path = f"{programs}:{os.environ['PATH']}"
    return {**kept, "PATH": path, "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}


def _check_metadata(kind, manifest):
    _only(manifest, {"apiVersion", "kind", "metadata", "spec"}, "job")
    found = list(problems(manifest["metadata"], "V1ObjectMeta", "metadata"))
    name, labels = manifest["metadata"]["name"], manifest["metadata"].get("labels", {})
    # The names of the operators' pods and services must be valid, too.
    longest = f"{name}-worker-999" if kind == "TFJob" else f"{name}-node-0-999-abcde"
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(longest):
        found.append(f"metadata.name: {name} must be a DNS label")
    found += [f"label {value}" for value in labels.values() if not _LABEL.fullmatch(value)]
    if manifest["kind"] != kind or found:
        raise Refused(422, f"{kind} is invalid: {found}")


def _only(value, allowed, where):
    unknown = value.keys() - allowed
    if unknown:
        raise Refused(422, f"unknown field {where}.{sorted(unknown)}")


def _among(value, allowed):
    if value not in allowed:
        raise Refused(422, f"Unsupported value: {value}, supported: {sorted(map(str, allowed))}")


def _now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
