"""What a dataset over arrays tells of them; a dataset like the user's leaves that as it is."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf

from tfx_perf.tf_internals import ancestry
from tfx_perf.tf_internals.ancestry import ArrayDataset
from tfx_perf.tf_internals.datasets import blank
from tfx_perf.tf_internals.iterators import saved

NUMBERS = np.arange(12.0).reshape(6, 2)


def content(arrays):
    data = tf.data.Dataset.range(3)
    return ArrayDataset(data, arrays=arrays, batch_size=2).content


@pytest.mark.parametrize(
    "part",
    [
        NUMBERS,
        tf.constant(NUMBERS),
        pd.DataFrame(NUMBERS),
        np.array([["a"], ["bc"]], dtype=object),
        {"a": NUMBERS, "b": [NUMBERS + 1, None]},
        tf.sparse.from_dense(NUMBERS),
    ],
)
def test_equal_arrays_have_the_same_content(part):
    copy = tf.nest.map_structure(lambda each: getattr(each, "copy", lambda: each)(), part)
    assert content((part, None)) == content((copy, None))


@pytest.mark.parametrize(
    "other",
    [NUMBERS + 1, NUMBERS.astype("float32"), NUMBERS[:4], NUMBERS.reshape(2, 6), None, {0: 2.0}],
)
def test_other_arrays_have_another_content(other):
    assert content(NUMBERS) != content(other)
    assert content({0: 1.0}) != content({0: 2.0})


@pytest.mark.parametrize(
    "make",
    [tf.sparse.from_dense, scipy.sparse.csr_matrix, tf.RaggedTensor.from_tensor, pd.DataFrame],
)
def test_what_holds_other_numbers_in_the_same_shape_has_another_content(make):
    assert content(make(NUMBERS)) == content(make(NUMBERS.copy()))
    assert content(make(NUMBERS)) != content(make(NUMBERS * 2))


def test_class_weights_may_be_of_numpy():
    assert content({0: np.float64(1.5)}) != content({0: np.float64(2.5)})


def test_of_large_arrays_some_rows_are_compared(monkeypatch):
    monkeypatch.setattr(ancestry, "_COMPARED_BYTES", NUMBERS.nbytes // 2)
    changed = NUMBERS.copy()
    changed[1] += 1
    assert content(NUMBERS) == content(changed)
    changed[2] += 1
    assert content(NUMBERS) != content(changed)


def test_a_dataset_over_arrays_has_the_elements_and_options_of_what_keras_made():
    data = tf.data.Dataset.range(3)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    found = ArrayDataset(data.with_options(options), arrays=NUMBERS, batch_size=2)
    assert list(found.as_numpy_iterator()) == [0, 1, 2]
    assert int(found.cardinality()) == 3
    assert found.batch_size == 2
    policy = found.options().experimental_distribute.auto_shard_policy
    assert policy is tf.data.experimental.AutoShardPolicy.DATA


def elements(data):
    return [np.asarray(batch).tolist() for batch in data]


def shuffled():
    return tf.data.Dataset.range(10).shuffle(10, seed=7).batch(2).prefetch(2)


def test_the_order_of_the_users_data_stays():
    data, expected = shuffled(), shuffled()
    like = ancestry.independent(data)
    first = elements(like)
    elements(like)
    assert first == elements(expected) == elements(data)
    assert elements(data) == elements(expected)


def test_a_cache_is_filled_by_its_own_reader():
    data = tf.data.Dataset.range(6).shuffle(6, seed=1).cache()
    elements(ancestry.independent(data))
    assert elements(data) == elements(tf.data.Dataset.range(6).shuffle(6, seed=1).cache())


def test_random_numbers_are_drawn_from_a_generator_of_its_own():
    def numbers():
        return tf.data.Dataset.random(seed=4, rerandomize_each_iteration=True).take(5)

    data, expected = numbers(), numbers()
    like = ancestry.independent(data)
    first = elements(like)
    elements(like)
    assert first == elements(expected) == elements(data)


def test_operations_that_write_the_data_are_dropped(tmp_path):
    data = tf.data.Dataset.range(6).snapshot(str(tmp_path / "snapshot"))
    assert elements(ancestry.independent(data)) == [0, 1, 2, 3, 4, 5]
    assert not any(tmp_path.iterdir())


def test_arrays_shared_with_other_readers_are_not_copied():
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    worker = service.WorkerServer(
        service.WorkerConfig(dispatcher_address=dispatcher.target.partition("://")[2])
    )
    data = tf.data.Dataset.range(6).apply(
        service.distribute("distributed_epoch", service=dispatcher.target, job_name="shared")
    )
    assert ancestry.independent(data) is None
    assert ancestry.independent(data, may_share=True) is not None
    del worker


def test_without_order_no_more_is_read_than_is_taken():
    data = tf.data.Dataset.range(10**9).shuffle(10**8).batch(4)
    like = ancestry.independent(data, without=ancestry.UNORDERED)
    assert elements(like.take(1)) == [[0, 1, 2, 3]]


def test_options_stay():
    options = tf.data.Options()
    options.autotune.enabled = False
    data = shuffled().with_options(options)
    assert ancestry.independent(data).options().autotune.enabled is False


def test_python_is_not_called():
    spec = tf.TensorSpec([], tf.int32)
    data = tf.data.Dataset.from_generator(lambda: iter([1, 2]), output_signature=spec)
    assert ancestry.independent(data.map(lambda x: x + 1)) is None
    mapped = tf.data.Dataset.range(9).map(lambda x: tf.py_function(abs, [x], tf.int64))
    assert ancestry.independent(mapped) is None


def test_data_that_call_python_come_again_in_the_order_of_the_first_pass():
    def data():
        numbers = tf.data.Dataset.range(9).map(lambda x: tf.py_function(abs, [x], tf.int64))
        return numbers.shuffle(9, seed=1)

    read = data()
    first = elements(read)
    assert elements(ancestry.independent(read, may_share=True)) == first
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


def random(_):
    return tf.random.uniform([], seed=9)


def in_python(number):
    return tf.numpy_function(lambda value: value, [number], tf.int64)


NUMBERED = tf.data.Dataset.range(4)


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (NUMBERED.map(random).shuffle(3).batch(2).repeat(), "RandomUniform is stateful"),
        (NUMBERED.map(in_python).shuffle(3).shuffle(4), "PyFunc is stateful"),
        (NUMBERED.shuffle(3).map(random), None),  # TensorFlow says it when it saves
        (NUMBERED.map(lambda number: number + 1).shuffle(3), None),
    ],
    ids=["random", "python", "after", "none"],
)
def test_a_state_in_front_of_a_shuffle_is_found(data, state):
    assert ancestry.state_before_shuffles(data) == state


def test_tensorflow_itself_does_not_see_a_state_in_front_of_a_shuffle():
    """Once it does, `state_before_shuffles` can go."""
    saved(iter(NUMBERED.map(random).shuffle(3, seed=1)))
    with pytest.raises(tf.errors.FailedPreconditionError):
        saved(iter(NUMBERED.map(random)))


@pytest.mark.parametrize(
    "read",
    [
        lambda file: tf.data.TFRecordDataset([file]),
        lambda file: tf.data.TFRecordDataset([file], buffer_size=2**23),
        lambda file: tf.data.TextLineDataset(file, buffer_size=2**23),
    ],
)
def test_the_buffer_of_bytes_that_reads_a_file_is_no_buffer_of_rows(read, tmp_path):
    data = read(str(tmp_path / "file")).map(tf.strings.length).shuffle(5).batch(2).prefetch(3)
    assert ancestry.held_bytes(data) == 5 * 4 + 3 * ancestry._UNKNOWN_BYTES
