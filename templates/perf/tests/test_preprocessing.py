"""The columns after preprocessing."""

import pathlib

import pytest
import tensorflow as tf
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

import make_data
from models import features, preprocessing


@pytest.fixture(scope="module")
def transformed(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The first orders, one of them without a discount, after preprocessing."""
    made = make_data.rows(50)
    columns = {
        **{name: tf.io.FixedLenFeature([], tf.float32) for name in features.NUMERIC},
        **{name: tf.io.FixedLenFeature([], tf.string) for name in features.CATEGORICAL},
        "discount": tf.io.VarLenFeature(tf.float32),
        features.LABEL: tf.io.FixedLenFeature([], tf.int64),
    }
    data = [{**order, "discount": [order["discount"]]} for order in made]
    data[0]["discount"] = []
    metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(columns))
    with tft_beam.Context(temp_dir=str(tmp_path_factory.mktemp("transform"))):
        (rows, _), _ = (data, metadata) | tft_beam.AnalyzeAndTransformDataset(
            preprocessing.preprocessing_fn
        )
    return rows


def test_every_feature_is_one_number(transformed: list[dict]) -> None:
    names = {*features.NUMERIC, *features.CATEGORICAL, features.LABEL}
    for row in transformed:
        assert {name: value.shape for name, value in row.items()} == dict.fromkeys(names, (1,))


def test_numbers_are_scaled(transformed: list[dict]) -> None:
    for name in features.NUMERIC:
        mean = sum(float(row[name][0]) for row in transformed) / len(transformed)
        assert mean == pytest.approx(0, abs=1e-5)


def test_words_have_a_position(transformed: list[dict]) -> None:
    positions = {int(row["channel"][0]) for row in transformed}
    assert positions == set(range(len(make_data.CHANNELS)))


def test_the_data_of_the_project_has_these_columns() -> None:
    path = pathlib.Path(__file__).parents[1] / "data" / "orders.csv"
    header = path.read_text(encoding="utf-8").partition("\n")[0]
    assert set(header.split(",")) >= {*features.NUMERIC, *features.CATEGORICAL, features.LABEL}
