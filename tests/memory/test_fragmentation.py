"""Fragmentation as the allocator itself tells it."""

import pytest
import tensorflow as tf

from tfx_perf import isolate
from tfx_perf.core import errors
from tfx_perf.memory import peak


def index_after(tmp_path, *, freed):
    return isolate.run(
        "fragmentation_cases:index_after",
        {"freed": freed},
        timeout_seconds=120,
        log_path=tmp_path / "log",
        environment=peak.ENVIRONMENT,
    )


@pytest.mark.slow
def test_holes_count_and_one_large_rest_does_not(tmp_path):
    # Regions of 1, 2, 4, ... 64 MiB hold the tensors. With every other one freed, the largest
    # chunk is what is left of the last region, some 27 of 77 MiB.
    assert 0.5 < index_after(tmp_path, freed="every_other") < 0.8
    assert index_after(tmp_path, freed="last") < 0.2


def test_an_allocator_that_does_not_tell():
    with pytest.raises(errors.MeasurementError, match="CPU:0 does not report it"):
        peak.fragmentation(lambda: tf.zeros(10) + 1)


def test_the_users_own_profiler_keeps_running(tmp_path):
    tf.profiler.experimental.start(str(tmp_path))
    with pytest.raises(errors.MeasurementError, match="in use"):
        peak.fragmentation(lambda: tf.zeros(10) + 1)
    tf.profiler.experimental.stop()
    assert list(tmp_path.rglob("*.xplane.pb"))
