"""The tf.data service, with a real dispatcher and real workers in processes of their own."""

import contextlib
import json
import socket
import subprocess
import sys
import time

import pytest
import tensorflow as tf
from record_data import SPARSE_SCHEMA

from tfx_perf.input import candidate, candidates, fingerprint
from tfx_perf.input.limits import Limits
from tfx_perf.input.parameters import Parameters

AMPLE = Limits(memory_bytes=2**30)
DISPATCHER = """
import tensorflow as tf
server = tf.data.experimental.service.DispatchServer()
print(server.target, flush=True)
server.join()
"""
WORKER = """
import sys, tensorflow as tf
service = tf.data.experimental.service
address = sys.argv[1].split("://")[1]
server = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
print("ready", flush=True)
server.join()
"""
DISPATCHER_AND_WORKER = """
import tensorflow as tf
service = tf.data.experimental.service
dispatcher = service.DispatchServer()
address = dispatcher.target.split("://")[1]
worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
print(dispatcher.target, flush=True)
worker.join()
"""


@contextlib.contextmanager
def running(script, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def service():
    """A dispatcher and two workers; returns its address."""
    with running(DISPATCHER) as dispatcher:
        address = dispatcher.stdout.readline().strip()
        with running(WORKER, address) as first, running(WORKER, address) as second:
            assert [one.stdout.readline().strip() for one in [first, second]] == ["ready"] * 2
            yield address


@pytest.fixture(scope="module")
def service_of_one():
    with running(DISPATCHER_AND_WORKER) as process:
        yield process.stdout.readline().strip()


def build(source, address, name="parallel_reader+service", unused=()):
    parameters = Parameters(service_address=address, unused_features=unused)
    return candidates.make(name, parameters).build(source, limits=AMPLE)


def numbers(dataset):
    return [n for features, _ in dataset for n in features["number"].numpy().ravel().tolist()]


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


def test_several_epochs(service, make_source):
    source = make_source(num_epochs=2)
    found = build(source, service)
    assert sorted(numbers(found)) == sorted(2 * list(range(230)))
    assert [len(label) for _, label in found] == [len(label) for _, label in source.default()]


def test_endless(service, make_source):
    source = make_source()
    found = build(source, service)
    assert found.element_spec == source.element_spec
    assert found.cardinality() == source.default().cardinality()
    assert len(numbers(found.take(40))) == 640


def test_projection_around_it(service, make_source):
    source = make_source(num_epochs=1)
    dataset = build(source, service, "parallel_reader+service+projection", ("pair",))
    assert dataset.element_spec == source.element_spec
    assert sorted(numbers(dataset)) == list(range(230))


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


def test_without_a_dispatcher(make_source):
    with socket.socket() as closed:
        closed.bind(("localhost", 0))
        address = f"grpc://localhost:{closed.getsockname()[1]}"
    started = time.monotonic()
    for absent in [address, "nonsense"]:
        with pytest.raises(candidate.NotApplicable, match="no dispatcher answers"):
            build(make_source(), absent)
    assert time.monotonic() - started < 60  # TensorFlow itself would wait for an hour
    with pytest.raises(candidate.NotApplicable, match="no dispatcher of a"):
        build(make_source(), None)
