"""The catalogue is consistent, and only what can be recorded is."""

import pytest

from tfx_perf.core import metrics
from tfx_perf.core.metrics import CATALOGUE

UNIT_OF_SUFFIX = {"_seconds": "seconds", "_bytes": "bytes", "_count": "count"}


@pytest.mark.parametrize("key", CATALOGUE)
def test_a_key_says_its_unit(key):
    metric = CATALOGUE[key]
    assert metric.key == key
    assert metric.description.endswith(".")
    for suffix, unit in UNIT_OF_SUFFIX.items():
        if key.endswith(suffix):
            assert metric.unit == unit
    assert (metric.unit == "1/second") == key.endswith("_per_second")
    assert metric.unit in ("ratio", "times") or not key.endswith("_ratio")


def test_no_key_occurs_twice():
    keys = [metric.key for metric in metrics._METRICS]
    assert sorted(keys) == sorted(set(keys))


def test_missing_or_non_finite_figures_are_dropped():
    found = metrics.checked(
        {
            "step_time_seconds": 1,
            "mfu_ratio": None,
            "train_loss": float("nan"),
            "validation_loss": float("inf"),
            "xla_enabled": False,
        }
    )
    assert found == {"step_time_seconds": 1.0, "xla_enabled": 0.0}
    assert all(type(value) is float for value in found.values())


def test_an_unknown_key_is_refused():
    with pytest.raises(KeyError, match="speed"):
        metrics.checked({"speed": 1.0})
