"""How much memory a step may take is a share of what this process can still get."""

import pytest
import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.memory import limit

pytestmark = pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="there it is the allocator that counts"
)


def test_on_a_cpu_it_is_a_share_of_the_memory_that_is_left():
    found = limit.memory_limit(max_utilization=0.5)
    assert found.source == "50% of available RAM"
    assert found.bytes == pytest.approx(0.5 * host.available_memory_bytes(), rel=0.2)
    assert found.bytes <= limit.device_memory_bytes() == host.memory_limit_bytes()
