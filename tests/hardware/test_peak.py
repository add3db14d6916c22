"""Peaks: known GPUs from the table, unknown ones refused, the CPU measured."""

import pytest
import tensorflow as tf

from tfx_perf.training import model_flops


@pytest.mark.parametrize(
    ("name", "dtype", "tf32", "tflops"),
    [
        ("NVIDIA A100-SXM4-40GB", "bfloat16", True, 312),
        ("NVIDIA A100-SXM4-40GB", "float32", True, 156),
        ("NVIDIA A100-SXM4-40GB", "float32", False, 19.5),
        ("NVIDIA A10", "float16", True, 125),
        ("Tesla V100-SXM2-16GB", "float32", True, 15.7),  # has no TF32
        ("Tesla V100-PCIE-32GB", "float16", True, 112),
        ("Tesla T4", "float16", True, 65),
        ("NVIDIA L4", "float32", True, 60),
        ("NVIDIA H100 80GB HBM3", "bfloat16", True, 989.5),
        ("NVIDIA H100 PCIe", "bfloat16", True, 756),
        ("NVIDIA H100 NVL", "float16", True, 835.5),
        ("NVIDIA H200", "float16", True, 989.5),
        ("NVIDIA B200", "float16", True, 2250),
        ("NVIDIA GB200", "float16", True, 2500),
    ],
)
def test_a_known_gpu_has_its_dense_datasheet_peak(name, dtype, tf32, tflops):
    found = model_flops.gpu_peak(name, dtype, tf32=tf32)
    assert found.flops_per_second == tflops * 1e12
    assert name in found.source


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("NVIDIA L40S", "float16"),
        ("NVIDIA A10G", "float16"),
        ("NVIDIA H200 NVL", "float16"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "float16"),
        ("Tesla T4", "bfloat16"),
        ("NVIDIA A100-SXM4-40GB", "float64"),
        ("", "float32"),
    ],
)
def test_an_unknown_peak_is_not_guessed(name, dtype):
    found = model_flops.gpu_peak(name, dtype, tf32=True)
    assert found.flops_per_second is None
    assert "no " in found.source


def test_the_cpu_peak_is_measured_once_and_is_plausible():
    device = tf.config.get_visible_devices("CPU")[0]
    found = model_flops.peak_flops(device, tf.float32)
    assert "measured" in found.source
    # From one slow core to a large two-socket server.
    assert 1e9 < found.flops_per_second < 1e14
    assert model_flops.peak_flops(device, "float32") is found


def test_an_unknown_kind_of_device_has_a_reason():
    device = tf.config.PhysicalDevice("/physical_device:TPU:0", "TPU")
    assert model_flops.peak_flops(device, "bfloat16").flops_per_second is None
