"""The tf.data service, with a real dispatcher and real workers in processes of their own.

They are started as people do it, by `data_service`.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf
from record_data import SPARSE_SCHEMA

from tests.ports import free_port
from tfx_perf.input import candidate, candidates
from tfx_perf.input.limits import Limits
from tfx_perf.input.parameters import Parameters
from tfx_perf.input.proof import fingerprint

pytestmark = pytest.mark.each_choice

AMPLE = Limits(memory_bytes=2**30)
COMMAND = [str(pathlib.Path(sys.executable).with_name("tfx-perf")), "data-service"]
WORKER = ("worker", "--dispatcher")


@contextlib.contextmanager
def running(*arguments):
    """Runs a server; returns the address that it prints."""
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def service_of_one():
    """A dispatcher with one worker; returns its address."""
    with running("dispatcher", "--port", "0") as address, running(*WORKER, address):
        yield address


@pytest.fixture(scope="module")
def service(service_of_one):
    """The same with a second worker."""
    with running(*WORKER, service_of_one):
        yield service_of_one


def build(source, address, name="parallel_reader+service"):
    parameters = Parameters(service_address=address)
    return candidates.make(name, parameters).build(source, limits=AMPLE)


def numbers(dataset):
    return [n for features, _ in dataset for n in features["number"].numpy().ravel().tolist()]


@pytest.mark.one_case
@pytest.mark.parametrize("schema", [None, SPARSE_SCHEMA])
def test_an_epoch_is_the_split(schema, service, make_source):
    source = make_source(num_epochs=1, **({"schema": schema} if schema else {}))
    dataset = build(source, service)
    assert dataset.element_spec == source.element_spec
    assert fingerprint.digest(dataset) == fingerprint.digest(source.default())
    first, again = numbers(dataset), numbers(dataset)
    assert sorted(again) == list(range(230))
    assert first != again


def test_with_one_worker(service_of_one, make_source):
    source = make_source(num_epochs=1)
    dataset = build(source, service_of_one)
    assert fingerprint.digest(dataset) == fingerprint.digest(source.default())


@pytest.mark.slow
def test_several_epochs(service, make_source):
    source = make_source(num_epochs=2)
    found = build(source, service)
    assert sorted(numbers(found)) == sorted(2 * list(range(230)))
    assert [len(label) for _, label in found] == [len(label) for _, label in source.default()]


@pytest.mark.slow
def test_endless(service, make_source):
    source = make_source()
    found = build(source, service)
    assert found.element_spec == source.element_spec
    assert found.cardinality() == source.default().cardinality()
    assert len(numbers(found.take(40))) == 640


@pytest.mark.parametrize(
    ("options", "reason"), [({"shuffle": False}, "no order"), ({"shuffle_seed": 1}, "no order")]
)
def test_keeps_no_order(options, reason, service, make_source):
    with pytest.raises(candidate.NotApplicable, match=reason):
        build(make_source(**options), service)


def test_refuses_a_global_seed(service, make_source):
    tf.random.set_seed(1)
    with pytest.raises(candidate.NotApplicable, match="would repeat one order"):
        build(make_source(), service)


def test_refuses_other_candidates(service, make_source):
    with pytest.raises(candidate.NotApplicable, match="cannot run columns"):
        build(make_source(), service, "columns+service")


def test_refuses_several_training_workers(service, make_source, monkeypatch):
    cluster = {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    with pytest.raises(candidate.NotApplicable, match="several training workers"):
        build(make_source(), service)


@pytest.mark.slow
def test_a_dispatcher_that_died_goes_on(make_source, tmp_path):
    port = free_port()
    dispatcher = ("dispatcher", "--port", str(port), "--work-dir", str(tmp_path / "state"))
    source = make_source(num_epochs=2)
    first = subprocess.Popen([*COMMAND, *dispatcher], stdout=subprocess.PIPE, text=True)
    address = first.stdout.readline().split()[-1]
    with running(*WORKER, address):
        batches = iter(build(source, address))
        found = [next(batches)]
        first.kill()
        first.wait()
        with running(*dispatcher):
            found.extend(batches)
    assert sorted(numbers(found)) == sorted(2 * list(range(230)))


@pytest.mark.slow
def test_a_worker_waits_for_its_dispatcher():
    port = free_port()
    address = f"grpc://localhost:{port}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    worker = subprocess.Popen([*COMMAND, *WORKER, address], **pipes, text=True)
    assert worker.stderr.readline().strip() == f"Waiting for a dispatcher at {address}"
    with running("dispatcher", "--port", str(port)):
        assert worker.stdout.readline().startswith("Worker at grpc://localhost:")
        worker.send_signal(signal.SIGINT)
        # TensorFlow may have its say before.
        assert worker.communicate(timeout=60)[1].splitlines()[-1] == "tfx-perf: interrupted"
        assert worker.returncode == 130


@pytest.mark.parametrize("arguments", [("dispatcher",), ("worker", "--dispatcher", "ADDRESS")])
def test_a_port_that_is_in_use(arguments, service_of_one):
    port = service_of_one.rpartition(":")[2]
    given = [argument.replace("ADDRESS", service_of_one) for argument in arguments]
    done = subprocess.run(
        [*COMMAND, *given, "--port", port], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"port that is free. Received: --port {port}" in done.stderr


def test_a_worker_refuses_another_address():
    done = subprocess.run(
        [*COMMAND, *WORKER, "localhost:5050"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Expected grpc://HOST:PORT" in done.stderr


def test_without_a_dispatcher(make_source):
    address = f"grpc://localhost:{free_port()}"
    started = time.monotonic()
    for absent in [address, "nonsense"]:
        with pytest.raises(candidate.NotApplicable, match="no dispatcher answers"):
            build(make_source(), absent)
    assert time.monotonic() - started < 60  # TensorFlow itself would wait for an hour
    with pytest.raises(candidate.NotApplicable, match="no dispatcher of a"):
        build(make_source(), None)
