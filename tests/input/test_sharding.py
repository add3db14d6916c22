"""The data that each worker of a `tf.distribute` strategy gets."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest
import record_data
import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute

from tfx_perf.input import candidates
from tfx_perf.input.candidates import sharding
from tfx_perf.input.candidates.limits import Limits

pytestmark = pytest.mark.one_case

AMPLE = Limits(memory_bytes=2**30)
OTHERS = [name for name in candidates.CANDIDATES if name != "default"]
EVERY = list(range(230))
every_candidate = pytest.mark.parametrize("name", OTHERS)


def build(name, source):
    return candidates.make(name).build(source, limits=AMPLE)


def of_worker(dataset, index, workers):
    """Does what `tensorflow/python/distribute/input_lib.py` does for a worker of one replica."""
    batch_size = distribute.compute_batch_size(dataset)
    if batch_size == -1:
        dataset = distribute._LegacyRebatchDataset(dataset, workers)
    else:
        sizes = distribute.batch_sizes_for_worker(batch_size, workers, 1, index)
        dataset = dataset.rebatch(sizes)
    return distribute._AutoShardDataset(dataset.prefetch(1), workers, index, workers)


def numbers(dataset):
    return [n for features, _ in dataset for n in features["number"].numpy().ravel().tolist()]


@every_candidate
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("workers", [2, 3, 5])  # of three files
def test_one_epoch_of_all_workers_is_the_split(name, shuffle, workers, make_source, built):
    dataset = built(name, make_source(num_epochs=1, shuffle=shuffle))
    parts = [numbers(of_worker(dataset, index, workers)) for index in range(workers)]
    assert sorted(sum(parts, [])) == EVERY
    assert min(map(len, parts)) >= 230 // workers // 2


@every_candidate
def test_workers_need_not_shuffle_alike(name, make_source, built):
    """One more iterator on one worker shifts its sequence of permutations."""
    dataset = built(name, make_source(num_epochs=1))
    numbers(dataset)
    parts = [numbers(of_worker(dataset, index, 2)) for index in [0, 1, 1]]
    assert sorted(parts[0] + parts[2]) == EVERY
    assert parts[1] != parts[2]
    assert sorted(numbers(dataset)) == EVERY


@every_candidate
def test_later_epochs(name, make_source, built):
    dataset = built(name, make_source(num_epochs=2))
    parts = [numbers(of_worker(dataset, index, 2)) for index in range(2)]
    assert sorted(sum(parts, [])) == sorted(EVERY + EVERY)
    assert sorted(sum((part[: len(part) // 2] for part in parts), [])) == EVERY
    assert parts[0][: len(parts[0]) // 2] != parts[0][len(parts[0]) // 2 :]


@every_candidate
def test_endless_batches_are_divided(name, make_source, built):
    dataset = built(name, make_source(schema=record_data.MANY_KINDS_SCHEMA))
    for index in range(2):
        for features, _ in of_worker(dataset, index, 2).take(40):
            assert features["number"].shape[0] == 8
            assert features["words"].dense_shape[0] == 8


@pytest.mark.parametrize("reads_files", [True, False])
def test_split_tells_the_worker(reads_files):
    def pair(worker):
        return tf.data.Dataset.from_tensors((worker.index, worker.count))

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = sharding.POLICY
    dataset = sharding.split(pair, reads_files=reads_files).with_options(options)
    assert list(dataset.as_numpy_iterator()) == [(0, 1)]
    for workers in [1, 2, 7, 300]:
        for index in {0, workers // 2, workers - 1}:
            found = distribute._AutoShardDataset(dataset, workers, index, workers)
            assert list(found.as_numpy_iterator()) == [(index, workers)]


TWO_REPLICAS = """
import sys, tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
"""
TWO_WORKERS = """
import sys, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""
COLLECT = """
import json, record_data
from test_sharding import OTHERS, build
found = {}
for name in OTHERS:
    dataset = build(name, record_data.plain_source(sys.argv[1], num_epochs=1))
    found[name] = [
        number
        for features, _ in strategy.experimental_distribute_dataset(dataset)
        for replica in strategy.experimental_local_results(features["number"])
        for number in replica.numpy().ravel().tolist()
    ]
print(json.dumps(found))
"""


def start(script, folder, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", script + COLLECT, str(folder)],
        cwd=pathlib.Path(__file__).parent, env={**os.environ, **environment},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def collected(process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return json.loads(output.splitlines()[-1])


@pytest.mark.slow
def test_two_replicas(split_folder):
    found = collected(start(TWO_REPLICAS, split_folder))
    assert {name: sorted(found[name]) for name in found} == dict.fromkeys(OTHERS, EVERY)


@pytest.mark.slow
def test_two_worker_processes(split_folder):
    with socket.socket() as first, socket.socket() as second:
        for free in [first, second]:
            free.bind(("localhost", 0))
        workers = [f"localhost:{free.getsockname()[1]}" for free in [first, second]]
    processes = [
        start(TWO_WORKERS, split_folder, TF_CONFIG=json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        ))
        for index in range(2)
    ]  # fmt: skip
    try:
        found = [collected(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for name in OTHERS:
        assert sorted(found[0][name] + found[1][name]) == EVERY
        assert min(len(part[name]) for part in found) >= 230 // 3 - 1
