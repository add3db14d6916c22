"""Chicago taxi trips as TFX's taxi example transforms them."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks.input.workloads import workload

_COPIES = 100
_BUCKETS = 10
# The features of `taxi_utils_native_keras.py` in TFX's examples.
_FLOATS = ("trip_miles", "fare", "trip_seconds")
_BUCKETIZED = ("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude")
_INTEGERS = (
    "trip_start_hour",
    "trip_start_day",
    "trip_start_month",
    "pickup_census_tract",
    "dropoff_census_tract",
    "pickup_community_area",
    "dropoff_community_area",
)
_VOCABULARIES = ("payment_type", "company")


def _tables() -> Iterator[workload.Columns]:
    """Yields the data set 100 times, each time with a little noise on the miles.

    Identical rows would flatter pipelines that compress, cache or compare them.
    """
    path = workload.package_file(
        "tfx",
        "examples/chicago_taxi_pipeline/data/simple/data.csv",
        remedy="It is part of the wheel of TFX: install tfx.",
    )
    columns = _transformed(pd.read_csv(path))
    generator = np.random.default_rng(workload.SEED)
    miles = columns["trip_miles_xf"]
    for _ in range(_COPIES):
        noise = generator.normal(scale=0.01, size=len(miles)).astype(np.float32)
        yield {**columns, "trip_miles_xf": miles + noise}


def _transformed(raw: pd.DataFrame) -> workload.Columns:
    """Returns what the example's `preprocessing_fn` makes of the rows."""
    columns = {}
    for name in _FLOATS:
        values = raw[name].fillna(0).to_numpy(np.float32)
        columns[f"{name}_xf"] = (values - values.mean()) / values.std()
    for name in _BUCKETIZED:
        values = raw[name].fillna(0).to_numpy()
        edges = np.quantile(values, np.linspace(0, 1, _BUCKETS + 1)[1:-1])
        columns[f"{name}_xf"] = np.searchsorted(edges, values, side="right")
    for name in _INTEGERS:
        columns[f"{name}_xf"] = raw[name].fillna(0).to_numpy(np.int64)
    for name in _VOCABULARIES:
        values = raw[name].fillna("")
        ranks = {value: rank for rank, value in enumerate(values.value_counts().index)}
        columns[f"{name}_xf"] = values.map(ranks).to_numpy(np.int64)
    big_tip = raw["tips"] > 0.2 * raw["fare"]
    columns[workload.LABEL_KEY] = big_tip.to_numpy(np.int64)
    return columns


TAXI = workload.Workload(
    name="taxi",
    description="Chicago taxi x100, transformed: 3 floats, 13 integers",
    batch_size=1024,
    class_count=2,
    tables=_tables,
    tabular=True,
)
