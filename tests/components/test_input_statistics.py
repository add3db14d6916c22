"""Statistics of two datasets: equal ones agree, planted differences are named.

They are TFDV's (`tfdv_statistics`); what differs stands in a `statistics_comparison`.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from tfx_perf.components.input_tuner import statistics

pytestmark = pytest.mark.each_choice

COUNT = 3000


def features():
    """Features of every kind, by name, to be changed; the first dimension is the example."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in _features().items()
    }


@functools.cache
def _features():
    numbers = np.arange(COUNT)
    rng = np.random.default_rng(0)
    return {
        "dense": rng.normal(size=(COUNT, 2, 3)).astype(np.float32),
        "bytes": np.array([b"\xff%d" % (n % 3) for n in numbers], dtype=object),
        "city": np.array([b"city%d" % (n % 50) for n in numbers], dtype=object),
        "key": np.array([b"key%d" % n for n in numbers], dtype=object),
        "flag": numbers % 2 == 0,
        "ragged": tf.ragged.constant([[n] * (n % 4) for n in numbers], dtype=tf.int64),
        "nested": tf.ragged.constant([[[n], [], [n, n]][: n % 4] for n in numbers]),
        "sparse": tf.sparse.from_dense((numbers[:, None] + [0, 1, 2]) % 3),
        "label": numbers[:, None] % 2,
    }


def dataset(columns, *, batch_size=32, order=None, drop_remainder=False):
    batches = tf.data.Dataset.from_tensor_slices(columns).batch(COUNT)
    if order is not None:
        batches = batches.unbatch().shuffle(COUNT, seed=order).batch(COUNT)
    batches = batches.unbatch().batch(batch_size, drop_remainder=drop_remainder)
    return batches.map(lambda batch: (batch, batch.pop("label")))


def compare(default, tuned, tmp_path, seconds=60, **arguments):
    return statistics.compare(default, tuned, folder=str(tmp_path), seconds=seconds, **arguments)


def found(result):
    return {(item.feature, item.statistic) for item in result.differences}


def test_same_examples_in_another_order_agree(tmp_path):
    result = compare(dataset(features()), dataset(features(), order=1), tmp_path)
    assert result.agree, result.differences
    assert (result.example_count, result.feature_count) == (COUNT, 9)
    assert result.complete
    assert type(result).model_validate(result.model_dump(mode="json")) == result


def test_what_is_written_is_for_tfdv(tmp_path):
    compare(dataset(features()), dataset(features()), tmp_path)
    for name in ("default", "tuned"):
        path = tmp_path / "statistics" / f"{name}.pb"
        loaded = tfdv.load_stats_binary(str(path)).datasets[0]
        assert (loaded.name, loaded.num_examples) == (name, COUNT)
        by_name = {feature.path.step[0]: feature for feature in loaded.features}
        assert set(by_name) == {*features(), "(label)"} - {"label"}
        assert by_name["dense"].num_stats.common_stats.tot_num_values == COUNT * 6
        assert by_name["ragged"].num_stats.common_stats.num_missing == COUNT // 4
        assert by_name["nested"].num_stats.common_stats.max_num_values == 3
        assert by_name["sparse"].num_stats.common_stats.tot_num_values == COUNT * 2
        assert by_name["bytes"].string_stats.invalid_utf8_count == COUNT
        assert by_name["flag"].num_stats.num_zeros == COUNT // 2
        assert by_name["(label)"].num_stats.mean == 0.5
    html = tfdv.utils.display_util.get_statistics_html(
        tfdv.load_stats_binary(str(tmp_path / "statistics" / "default.pb")),
        tfdv.load_stats_binary(str(tmp_path / "statistics" / "tuned.pb")),
    )
    assert "facets-overview" in html


def test_a_lost_example(tmp_path):
    tuned = dataset(features()).unbatch().skip(1).batch(32)
    result = compare(dataset(features()), tuned, tmp_path)
    assert not result.agree
    assert {("", "num_examples"), ("key", "unique"), ("city", "value_counts")} <= found(result)
    first = result.differences[0]
    assert (first.default, first.tuned) == (str(COUNT), str(COUNT - 1))


def test_examples_too_many(tmp_path):
    tuned = dataset(features()).repeat()
    assert ("", "num_examples") in found(compare(dataset(features()), tuned, tmp_path))


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("name", "value", "statistics_of_it"),
    [
        ("dense", 100.0, {"mean", "std_dev", "max"}),
        ("dense", np.nan, {"mean", "std_dev", "num_nan"}),
        ("city", b"town", {"unique", "value_counts"}),
        ("bytes", b"valid", {"invalid_utf8_count", "unique", "value_counts"}),
        ("flag", False, {"mean", "num_zeros"}),
        ("label", 7, {"mean", "std_dev", "max", "num_zeros"}),
    ],
)
def test_a_changed_value(name, value, statistics_of_it, tmp_path):
    changed = features()
    changed[name] = changed[name].copy()
    changed[name].flat[0] = value
    result = compare(dataset(features()), dataset(changed, order=2), tmp_path)
    shown = "(label)" if name == "label" else name
    assert {feature for feature, _ in found(result)} == {shown}
    assert {(shown, statistic) for statistic in statistics_of_it} <= found(result)


def test_missing_values_and_features(tmp_path):
    changed = features()
    one = tf.ragged.constant([[0]], dtype=tf.int64)
    changed["ragged"] = tf.concat([one, changed["ragged"][1:]], axis=0)
    del changed["flag"]
    result = compare(dataset(features()), dataset(changed), tmp_path)
    assert {("ragged", "num_missing"), ("flag", "type")} <= found(result)
    assert {item.tuned for item in result.differences if item.feature == "flag"} == {""}


def test_large_data_is_compared_on_its_first_examples(tmp_path):
    changed = features()
    changed["city"][-1] = b"town"
    result = compare(dataset(features()), dataset(changed), tmp_path, seconds=0)
    assert not result.complete
    assert result.example_count == 32
    assert result.agree
    changed["city"][0] = b"town"
    assert not compare(dataset(features()), dataset(changed), tmp_path, seconds=0).agree


def test_nan_and_infinity_in_both_agree(tmp_path):
    both = features()
    both["dense"][:5, 0, 0] = [np.nan, np.nan, np.inf, -np.inf, 0]
    assert compare(dataset(both), dataset(both, order=3), tmp_path).agree


def test_many_frequent_values_do_not_disagree(tmp_path):
    # 1,500 distinct values: more than TFDV's sketch counts exactly.
    columns = {"key": np.array([b"%d" % (n % 1500) for n in range(COUNT)]), "label": np.ones(COUNT)}
    assert compare(dataset(columns), dataset(columns, order=4), tmp_path).agree


def test_categories_of_the_schema_are_counted(tmp_path):
    schema = text_format.Parse(
        """feature { name: "code" type: INT int_domain { is_categorical: true } }
        sparse_feature { name: "other" index_feature { name: "i" } value_feature { name: "v" } }""",
        schema_pb2.Schema(),
    )
    columns = {"code": np.arange(COUNT) % 7, "label": np.ones(COUNT)}
    changed = {**columns, "code": np.where(np.arange(COUNT) == 3, 0, columns["code"])}
    result = compare(dataset(columns), dataset(changed), tmp_path, schema=schema)
    (difference,) = result.differences
    assert (difference.feature, difference.statistic) == ("code", "value_counts")
    assert (difference.default, difference.tuned) == ("0: 429, 3: 429", "0: 430, 3: 428")


def test_fixed_batch_size_and_no_examples(tmp_path):
    default, tuned = (dataset(features(), drop_remainder=True) for _ in range(2))
    assert compare(default, tuned, tmp_path).agree
    assert compare(default.take(0), tuned.take(0), tmp_path).example_count == 0


def test_what_tfdv_does_not_know_costs_only_the_comparison(tmp_path, caplog):
    odd = tf.data.Dataset.range(4).map(lambda n: tf.complex(1.0, 2.0)).batch(2)
    assert compare(odd, odd, tmp_path) is None
    assert "No statistics are compared" in caplog.text
