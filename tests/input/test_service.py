"""The tf.data service, with TensorFlow's own servers, started as docs/input.md says."""

import contextlib
import json
import pathlib
import re
import socket
import subprocess
import sys
import time

import pytest
import tensorflow as tf
from record_data import SPARSE_SCHEMA

from tests.ports import free_port
from tfx_perf.input import candidates, equivalence
from tfx_perf.input.candidates import candidate
from tfx_perf.input.candidates.limits import Limits

pytestmark = pytest.mark.each_choice

AMPLE = Limits(memory_bytes=2**30)
PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "input.md").read_text()
DISPATCHER, WORKER = re.findall(r"```python\n(import tensorflow.*?)```", PAGE, re.DOTALL)


@contextlib.contextmanager
def running(code, port):
    """Runs a server of the page, until and after it listens at its port."""
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
                break
            assert process.poll() is None
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait(timeout=60)


def dispatcher(port, folder):
    code = DISPATCHER.replace("5050", str(port)).replace("/tmp/dispatcher", str(folder))
    return running(code, port)


def worker(dispatcher_port):
    port = free_port()
    code = WORKER.replace("HOST:5050", f"localhost:{dispatcher_port}").replace("5051", str(port))
    return running(code.replace("WORKER:", "localhost:"), port)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A dispatcher with two workers; returns its address."""
    port = free_port()
    with dispatcher(port, tmp_path_factory.mktemp("state")), worker(port), worker(port):
        yield f"grpc://localhost:{port}"


def build(source, address):
    return candidates.make("service", service_address=address).build(source, limits=AMPLE)


def numbers(dataset):
    return [n for features, _ in dataset for n in features["number"].numpy().ravel().tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("schema", [None, SPARSE_SCHEMA])
def test_an_epoch_is_the_split(schema, service, make_source):
    source = make_source(num_epochs=1, **({"schema": schema} if schema else {}))
    dataset = build(source, service)
    assert dataset.element_spec == source.element_spec
    assert equivalence.prefix(dataset).digest == equivalence.prefix(source.default()).digest
    first, again = numbers(dataset), numbers(dataset)
    assert sorted(again) == list(range(230))
    assert first != again


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


@pytest.mark.parametrize("options", [{"shuffle": False}, {"shuffle_seed": 1}])
def test_keeps_no_order(options, service, make_source):
    with pytest.raises(candidate.NotApplicable, match="no order"):
        build(make_source(**options), service)


def test_refuses_a_global_seed(service, make_source):
    tf.random.set_seed(1)
    with pytest.raises(candidate.NotApplicable, match="would repeat one order"):
        build(make_source(), service)


def test_refuses_several_training_workers(service, make_source, monkeypatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1"]}
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    with pytest.raises(candidate.NotApplicable, match="several training workers"):
        build(make_source(), service)


@pytest.mark.slow
def test_a_restarted_dispatcher_continues(make_source, tmp_path):
    port = free_port()
    source = make_source(num_epochs=2)
    with dispatcher(port, tmp_path) as first, worker(port):
        batches = iter(build(source, f"grpc://localhost:{port}"))
        found = [next(batches)]
        first.kill()
        first.wait()
        with dispatcher(port, tmp_path):
            found.extend(batches)
    assert sorted(numbers(found)) == sorted(2 * list(range(230)))


def test_without_a_dispatcher(make_source):
    address = f"grpc://localhost:{free_port()}"
    started = time.monotonic()
    for absent in [address, "nonsense"]:
        with pytest.raises(candidate.NotApplicable, match="no dispatcher answers"):
            build(make_source(), absent)
    assert time.monotonic() - started < 60  # TensorFlow itself would wait for an hour
    with pytest.raises(candidate.NotApplicable, match="no dispatcher of a"):
        build(make_source(), None)
