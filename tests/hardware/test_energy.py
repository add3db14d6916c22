"""Energy counters, on a real tree of files."""

import os
import sys
import types

import pytest

from tfx_perf.core import errors
from tfx_perf.hardware import energy

RANGE = 1_000_000


def write_zone(root, name, label, microjoules):
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE}\n")


def test_packages_and_memory_are_added_up_and_nothing_twice(tmp_path):
    zones = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",  # inside of the package
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",  # the whole machine
        "intel-rapl-mmio:0": "package-0",  # the same counter, another way
    }
    for name, label in zones.items():
        write_zone(tmp_path, name, label, 100)
    counter = energy.RaplCounter(tmp_path)
    assert counter.joules() == 0.0
    for index, (name, label) in enumerate(zones.items()):
        write_zone(tmp_path, name, label, 100 + 10**index)
    assert counter.joules() == pytest.approx((1 + 100 + 1000) / 1e6)


def test_a_counter_that_wraps_around_continues(tmp_path):
    write_zone(tmp_path, "intel-rapl:0", "package-0", RANGE - 100)
    counter = energy.RaplCounter(tmp_path)
    write_zone(tmp_path, "intel-rapl:0", "package-0", 50)
    assert counter.joules() == pytest.approx(150 / 1e6)
    write_zone(tmp_path, "intel-rapl:0", "package-0", 80)
    assert counter.joules() == pytest.approx(180 / 1e6)


def test_without_rapl_the_reason_is_given(tmp_path):
    with pytest.raises(errors.MeasurementError, match="no RAPL in"):
        energy.RaplCounter(tmp_path)


def test_a_counter_without_read_permission_is_reported(tmp_path):
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    path = tmp_path / "intel-rapl:0" / "energy_uj"
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads every file; not even root reads a folder as one
        path.unlink()
        path.mkdir()
    with pytest.raises(errors.MeasurementError, match="RAPL cannot be read"):
        energy.RaplCounter(tmp_path)


def test_the_counted_energy_is_available_after_the_context(tmp_path, monkeypatch):
    write_zone(tmp_path, "intel-rapl:0", "package-0", 10)
    monkeypatch.setattr(energy.RaplCounter.__init__, "__defaults__", (tmp_path,))
    monkeypatch.setitem(sys.modules, "pynvml", None)  # cannot be imported
    with energy.counted() as used:
        assert used.joules is None
        write_zone(tmp_path, "intel-rapl:0", "package-0", 2_010)
    assert used.joules == pytest.approx(0.002)
    assert used.reason == "nvidia-ml-py is not installed"


def test_a_failing_counter_does_not_end_the_training(tmp_path, monkeypatch):
    write_zone(tmp_path, "intel-rapl:0", "package-0", 10)
    monkeypatch.setattr(energy.RaplCounter.__init__, "__defaults__", (tmp_path,))
    with energy.counted() as used:
        (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert used.joules is None
    assert used.reason.startswith("a counter failed")


def test_gpus_are_added_up(monkeypatch):
    """By NVML's documented interface; there is no GPU to ask."""
    millijoules = [1_000, 5_000]
    fake = types.SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: millijoules[handle],
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    counter = energy.NvmlCounter()
    millijoules[:] = [1_500, 5_250]
    assert counter.joules() == pytest.approx(0.75)
    assert counter.meter == "GPU-0, GPU-1"
