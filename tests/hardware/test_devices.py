"""The fingerprint contains everything that makes two runs comparable."""

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.hardware import devices, host
from tfx_perf.memory import batches


def test_the_environment_names_devices_host_and_versions():
    found = devices.describe()
    assert {
        "device_kind", "device_count", "cpu_model", "cpu_count", "cpu_features",
        "memory_class_bytes", "tensorflow", "keras", "tf_keras", "python",
    } <= set(found)  # fmt: skip
    assert all(isinstance(value, str) and value for value in found.values())
    assert found == devices.describe()
    assert found["device_count"] == str(len(devices.accelerators()))
    assert found["tensorflow"] == tf.__version__


def test_the_drivers_version_is_read(tmp_path, monkeypatch):
    path = tmp_path / "version"
    monkeypatch.setattr(devices, "_DRIVER", path)
    assert devices.gpu_software()["driver"] == "unknown"
    path.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n")
    assert devices.gpu_software()["driver"] == "535.104.05"


def test_data_are_distinguished_by_type_and_shape_not_by_number():
    def spec(x, y=None):
        arguments = {"x": x, "y": y, "sample_weight": None}
        return batches.spec_of(interception.FitCall(None, arguments, None))

    array = np.zeros((8, 3), np.float32)
    assert spec(array, array) == spec(array[:4], array[:4])
    assert len({spec(array), spec(array[:, :2]), spec(array.astype(int)), spec(array, array)}) == 4
    dataset = tf.data.Dataset.from_tensor_slices(array)
    assert spec(dataset.batch(2)) == spec(dataset.repeat().batch(4))
    assert spec(dataset.batch(2)) != spec(dataset.map(lambda row: row[:2]).batch(2))


@pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="there it is the allocator that counts"
)
def test_on_a_cpu_it_is_a_share_of_the_memory_that_is_left():
    found = devices.memory_limit(max_utilization=0.5)
    assert found.source == "50% of available RAM"
    assert found.bytes == pytest.approx(0.5 * host.available_memory_bytes(), rel=0.2)
    assert found.bytes <= devices.memory_bytes() == host.memory_limit_bytes()
    available_bytes = host.available_memory_bytes()
    left = devices.memory_limit(max_utilization=0.5, reserved_bytes=available_bytes // 2)
    assert left.bytes == pytest.approx(0.25 * available_bytes, rel=0.2)
    assert devices.memory_limit(max_utilization=0.5, reserved_bytes=2 * available_bytes).bytes == 0
