"""Looking at a dataset like the user's leaves the user's as it is."""

import numpy as np
import tensorflow as tf

from tfx_perf.tf_data import independent
from tfx_perf.tf_data.blank import blank


def elements(data):
    return [np.asarray(batch).tolist() for batch in data]


def shuffled():
    return tf.data.Dataset.range(10).shuffle(10, seed=7).batch(2).prefetch(2)


def test_the_order_of_the_users_data_stays():
    data, expected = shuffled(), shuffled()
    like = independent.independent(data)
    first = elements(like)
    elements(like)
    assert first == elements(expected) == elements(data)
    assert elements(data) == elements(expected)


def test_a_cache_is_filled_by_its_own_reader():
    data = tf.data.Dataset.range(6).shuffle(6, seed=1).cache()
    elements(independent.independent(data))
    assert elements(data) == elements(tf.data.Dataset.range(6).shuffle(6, seed=1).cache())


def test_random_numbers_are_drawn_from_a_generator_of_its_own():
    def numbers():
        return tf.data.Dataset.random(seed=4, rerandomize_each_iteration=True).take(5)

    data, expected = numbers(), numbers()
    like = independent.independent(data)
    first = elements(like)
    elements(like)
    assert first == elements(expected) == elements(data)


def test_what_writes_the_data_down_is_left_out(tmp_path):
    data = tf.data.Dataset.range(6).snapshot(str(tmp_path / "snapshot"))
    assert elements(independent.independent(data)) == [0, 1, 2, 3, 4, 5]
    assert not any(tmp_path.iterdir())


def test_what_is_shared_with_other_readers_is_not_copied():
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    worker = service.WorkerServer(
        service.WorkerConfig(dispatcher_address=dispatcher.target.partition("://")[2])
    )
    data = tf.data.Dataset.range(6).apply(
        service.distribute("distributed_epoch", service=dispatcher.target, job_name="shared")
    )
    assert independent.independent(data) is None
    assert independent.independent(data, may_share=True) is not None
    del worker


def test_without_order_no_more_is_read_than_is_taken():
    data = tf.data.Dataset.range(10**9).shuffle(10**8).batch(4)
    like = independent.independent(data, without=independent.UNORDERED)
    assert elements(like.take(1)) == [[0, 1, 2, 3]]


def test_options_stay():
    options = tf.data.Options()
    options.autotune.enabled = False
    data = shuffled().with_options(options)
    assert independent.independent(data).options().autotune.enabled is False


def test_python_is_not_called():
    spec = tf.TensorSpec([], tf.int32)
    data = tf.data.Dataset.from_generator(lambda: iter([1, 2]), output_signature=spec)
    assert independent.independent(data.map(lambda x: x + 1)) is None
    mapped = tf.data.Dataset.range(9).map(lambda x: tf.py_function(abs, [x], tf.int64))
    assert independent.independent(mapped) is None


def test_data_that_call_python_come_again_in_the_order_of_the_first_pass():
    def data():
        numbers = tf.data.Dataset.range(9).map(lambda x: tf.py_function(abs, [x], tf.int64))
        return numbers.shuffle(9, seed=1)

    read = data()
    first = elements(read)
    assert elements(independent.independent(read, may_share=True)) == first
    assert elements(read) != first


def test_blank_data_have_the_structure_asked_for():
    spec = {
        "dense": tf.TensorSpec([None, 3], tf.float32),
        "word": tf.TensorSpec([None], tf.string),
        "any": tf.TensorSpec(None, tf.int32),
        "ragged": tf.RaggedTensorSpec([None, None, 2], tf.float32),
        "sparse": tf.SparseTensorSpec([None, 5], tf.int64),
    }
    data = blank(spec)
    assert data.element_spec == spec
    element = next(iter(data))
    assert element["dense"].shape == (1, 3)
    assert element["sparse"].shape == (1, 5)
    assert element["ragged"].nrows() == 0
