"""What TensorFlow tells of its autotune."""

import threading
import time

import tensorflow as tf
from tensorflow.core.framework import model_pb2
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfx_perf.input.diagnosis import autotune_view


def untuned(dataset):
    """Only the profiler tells of a dataset without autotune, whatever the TensorFlow."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def test_the_default(make_source, capfd):
    nodes = autotune_view.read(make_source().default(), seconds=0.1)
    names = [node.name for node in nodes]
    interleave = next(node for node in nodes if "Interleave" in node.name)
    assert interleave.cycle_length >= 1
    parse = next(node for node in nodes if "ParseExample" in node.name)
    assert (parse.parallelism, parse.tuned) == (1, False)
    prefetch = nodes[-1]
    assert prefetch.name.startswith("Prefetch")
    assert prefetch.tuned
    assert prefetch.buffer_size >= 1
    assert names.index(interleave.name) < names.index(parse.name)
    assert len(set(names)) == len(names)
    assert "rofiler" not in capfd.readouterr().err


def test_fixed_by_the_user():
    dataset = tf.data.Dataset.range(10**9).map(abs, num_parallel_calls=2).prefetch(5)
    for own in [dataset, untuned(dataset)]:
        parallel_map, prefetch = autotune_view.read(own, seconds=0.1)
        assert (parallel_map.parallelism, parallel_map.tuned) == (2, False)
        assert (prefetch.buffer_size, prefetch.tuned) == (5, False)


def test_the_terminal_is_given_back(make_source, capfd):
    autotune_view.read(make_source().default(), seconds=0)
    tf.print("visible again")
    assert "visible again" in capfd.readouterr().err


def test_a_model():
    model = model_pb2.ModelProto(output=1)

    def add(number, name, *inputs, **parameters):
        node = model.nodes[number]
        node.name = name
        node.inputs.extend(inputs)
        for key, (value, state_value, tunable) in parameters.items():
            node.parameters.add(name=key, value=value, state_value=state_value, tunable=tunable)

    add(1, "Prefetch", 2, buffer_size=(9, 4, True))
    add(2, "Batch", 3)
    add(3, "ParallelInterleaveV4", 4, 5, parallelism=(2, 0, False), cycle_length=(6, 0, False))
    for file in [4, 5]:
        add(file, "FlatMap", file + 2, cycle_length=(1, 0, False))
        add(file + 2, "ParallelMapV2", parallelism=(3, 0, False))
    decode, interleave, prefetch = autotune_view.from_model(model)
    assert (decode.name, decode.parallelism) == ("ParallelMapV2", 3)
    assert (interleave.name, interleave.tuned) == ("ParallelInterleaveV4", False)
    assert (interleave.parallelism, interleave.cycle_length) == (2, 6)
    assert (prefetch.name, prefetch.buffer_size, prefetch.tuned) == ("Prefetch", 4, True)


def test_a_trace_whose_first_figures_are_not_available():
    space = xplane_pb2.XSpace()
    plane = space.planes.add()
    words = ["parallelism", "autotune", "unavailable", "true"]
    for number, word in enumerate(words):
        plane.stat_metadata[number].name = word
    plane.event_metadata[1].name = "Iterator::Root::Prefetch::ParallelMapV2"
    line = plane.lines.add()
    for figure in ({"ref_value": words.index("unavailable")}, {"int64_value": 3}):
        event = line.events.add(metadata_id=1)
        event.stats.add(metadata_id=0, **figure)
        event.stats.add(metadata_id=1, ref_value=words.index("true"))
    assert autotune_view.from_trace(space.SerializeToString()) == [
        autotune_view.AutotuneNode(name="ParallelMapV2", parallelism=3, tuned=True)
    ]


def test_a_failing_dataset():
    broken = tf.data.Dataset.range(1).map(lambda number: tf.io.decode_raw("abc", tf.int64))
    assert autotune_view.read(broken, seconds=0.1) == ()


def test_the_users_own_profile_goes_on(make_source, tmp_path):
    with tf.profiler.experimental.Profile(str(tmp_path)):
        assert autotune_view.read(untuned(make_source().default()), seconds=0) == ()
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_what_hangs_is_left_behind(monkeypatch):
    monkeypatch.setattr(autotune_view, "_GRACE_SECONDS", 0.2)
    ended = threading.Event()

    def wait(number):
        with tf.control_dependencies([tf.py_function(lambda: ended.wait(300), [], [])]):
            return tf.identity(number)

    started = time.monotonic()
    assert autotune_view.read(tf.data.Dataset.range(1).map(wait), seconds=0.1) == ()
    assert time.monotonic() - started < 200
    ended.set()
