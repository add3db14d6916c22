"""The manifests: strictly what Kubernetes' own types allow, and commands that really run."""

import contextlib
import pathlib
import re
import socket
import subprocess
import sys
import time

import pytest
import tensorflow as tf
import yaml

from tests.ports import free_port
from tfx_perf.distribute.kubernetes import job_kind

pytest.importorskip("kubernetes.client", reason="the extra tfx-perf[kfp] is not installed")
from kubernetes_types import problems  # noqa: E402 (which needs it)

KINDS = job_kind.KINDS.values()
FOLDER = pathlib.Path(__file__).parents[2] / "kubeflow" / "manifests"
DOCUMENTS = list(yaml.safe_load_all((FOLDER / "tf_data_service.yaml").read_text()))
PODS = {
    document["metadata"]["name"]: document["spec"]["template"]
    for document in DOCUMENTS
    if document["kind"] == "Deployment"
}
SERVICE = next(document for document in DOCUMENTS if document["kind"] == "Service")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each["metadata"]["name"])
def test_kubernetes_knows_every_key(document):
    assert list(problems(document, f"V1{document['kind']}")) == []


def test_names_agree():
    (dispatcher_container,) = PODS["tf-data-dispatcher"]["spec"]["containers"]
    assert SERVICE["spec"]["selector"] == PODS["tf-data-dispatcher"]["metadata"]["labels"]
    (port,) = SERVICE["spec"]["ports"]
    assert port["targetPort"] == dispatcher_container["ports"][0]["name"]
    (worker,) = PODS["tf-data-worker"]["spec"]["containers"]
    assert f'"{SERVICE["metadata"]["name"]}:{port["port"]}"' in worker["args"][-1]
    for container in (dispatcher_container, worker):
        (given,) = re.findall(r"port=(\d+)", container["args"][-1])
        assert [each["containerPort"] for each in container["ports"]] == [int(given)]
    for document in DOCUMENTS:
        if document["kind"] == "Deployment":
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"]["matchLabels"] == labels
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    images = {pod["spec"]["containers"][0]["image"] for pod in PODS.values()}
    assert images == {image["name"] for image in kustomization["images"]}
    assert all((FOLDER / name).exists() for name in kustomization["resources"])


TRAINING = FOLDER / "training"
ACCESS = list(yaml.safe_load_all((TRAINING / "access.yaml").read_text()))
VOLUME = yaml.safe_load((TRAINING / "shared_volume.yaml").read_text())
RUNTIME = yaml.safe_load((TRAINING / "training_runtime.yaml").read_text())
(NODE,) = RUNTIME["spec"]["template"]["spec"]["replicatedJobs"]


@pytest.mark.parametrize("document", [*ACCESS, VOLUME], ids=lambda each: each["kind"])
def test_kubernetes_knows_the_resources_that_several_workers_need(document):
    types = {"Role": "V1Role", "RoleBinding": "V1RoleBinding"}
    type_name = types.get(document["kind"], "V1PersistentVolumeClaim")
    if type_name == "V1RoleBinding":  # whose subjects have a type of another name in each version
        document = {key: value for key, value in document.items() if key != "subjects"}
    assert list(problems(document, type_name)) == []


def test_a_training_runtime_is_a_job_set_of_one_job():
    assert (RUNTIME["apiVersion"], RUNTIME["kind"]) == (
        "trainer.kubeflow.org/v1alpha1", "TrainingRuntime"
    )  # fmt: skip
    assert RUNTIME["spec"].keys() <= {"mlPolicy", "podGroupPolicy", "template"}
    assert NODE.keys() <= {"name", "template", "replicas", "groupName", "dependsOn"}
    assert list(problems(NODE["template"], "V1JobTemplateSpec")) == []
    step = NODE["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"]
    assert step == "trainer"
    kind = job_kind.KINDS["TrainJob"]
    assert (kind.group, kind.version) == tuple(RUNTIME["apiVersion"].split("/"))
    (container,) = NODE["template"]["spec"]["template"]["spec"]["containers"]
    assert NODE["name"] == container["name"] == kind.container


def test_the_resources_of_several_workers_fit_together():
    role, binding = ACCESS
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "tfx-perf-training")
    assert role["metadata"]["name"] == binding["roleRef"]["name"]
    allowed = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert allowed == {
        **{(kind.group, kind.plural): {"create", "get", "patch", "delete"} for kind in KINDS},
        ("", "pods"): {"get", "list"},
        ("", "pods/log"): {"get"},
        ("", "events"): {"list"},
    }
    pod = NODE["template"]["spec"]["template"]["spec"]
    (volume,) = pod["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == VOLUME["metadata"]["name"]
    assert pod["containers"][0]["volumeMounts"][0]["name"] == volume["name"]
    kustomization = yaml.safe_load((TRAINING / "kustomization.yaml").read_text())
    names = {path.name for path in TRAINING.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == names
    assert kustomization["images"][0]["name"] == pod["containers"][0]["image"]


def test_images_are_not_pulled_at_every_start():
    pods = [*(pod["spec"] for pod in PODS.values()), NODE["template"]["spec"]["template"]["spec"]]
    for pod in pods:
        assert [each["imagePullPolicy"] for each in pod["containers"]] == ["IfNotPresent"]


def test_the_service_fits_on_a_machine_of_two_cores():
    asked = 0
    for document in DOCUMENTS:
        if document["kind"] == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            cpu = container["resources"]["requests"]["cpu"]
            assert "cpu" not in container["resources"]["limits"]  # it may take more
            asked += document["spec"]["replicas"] * int(cpu.removesuffix("m"))
    assert asked < 1000  # of 2000; the cluster's own pods take several hundred


@pytest.mark.slow
def test_the_commands_serve(tmp_path):
    """As in the pods, but for the names of hosts, ports and the folder."""
    here = {
        SERVICE["metadata"]["name"]: "localhost",
        "$(POD_IP)": "localhost",
        "/state": str(tmp_path),
        "5050": str(free_port()),
        "5051": str(free_port()),
    }
    with contextlib.ExitStack() as stack:
        for pod in PODS.values():
            (container,) = pod["spec"]["containers"]
            _, *arguments = container["args"]
            port = here[str(container["ports"][0]["containerPort"])]
            for name, value in here.items():
                arguments = [argument.replace(name, value) for argument in arguments]
            process = subprocess.Popen([sys.executable, *arguments])
            stack.callback(process.wait, timeout=60)
            stack.callback(process.kill)
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("localhost", port)):
                    break
                assert process.poll() is None
                time.sleep(0.1)
            else:
                pytest.fail(f"nobody listens at {port}")
        service = tf.data.experimental.service
        read = tf.data.Dataset.range(3).apply(
            service.distribute(service.ShardingPolicy.OFF, f"grpc://localhost:{here['5050']}")
        )
        assert list(read.as_numpy_iterator()) == [0, 1, 2]
