"""The resources that the host and a container let the process use."""

import os

import psutil
import pytest

from tfx_perf.hardware import host


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Returns a function that lays out a control group file system."""
    monkeypatch.setattr(host, "_GROUPS", tmp_path)
    monkeypatch.setattr(host, "_MEMBERSHIP", tmp_path / "membership")

    def lay_out(membership, files):
        (tmp_path / "membership").write_text(membership)
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return lay_out


def test_the_real_host_answers_within_its_own_bounds():
    total = psutil.virtual_memory().total
    assert 0 < host.available_memory_bytes() <= host.memory_limit_bytes() <= total
    assert 1 <= host.cpu_count() <= os.cpu_count()
    assert host.cpu_model()


def test_version_2_takes_the_tightest_group_on_the_way_up(groups):
    groups(
        "0::/pod/container\n",
        {
            "pod/memory.max": "4000\n",
            "pod/memory.current": "1000\n",
            "pod/memory.stat": "anon 500\nfile 420\nshmem 20\ninactive_file 300\nactive_file 100\n",
            "pod/container/memory.max": "max\n",
            "pod/container/memory.current": "900\n",
            "pod/container/cpu.max": "150000 100000\n",
            "pod/cpu.max": "max 100000\n",
        },
    )
    assert host.memory_limit_bytes() == 4000
    assert host.available_memory_bytes() == 4000 - (1000 - 300 - 100)
    assert host.cpu_count() == min(2, len(os.sched_getaffinity(0)))
    assert host._cpu_quotas() == [1.5]


def test_version_1_inside_a_container_finds_the_root_of_its_mount(groups):
    groups(
        "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n",
        {
            "memory/memory.limit_in_bytes": "8000",
            "memory/memory.usage_in_bytes": "9000",
            "memory/memory.stat": "total_inactive_file 300\ntotal_active_file 200",
            "cpu,cpuacct/cpu.cfs_quota_us": "50000",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    )
    assert host.memory_limit_bytes() == 8000
    assert host.available_memory_bytes() == 0
    assert host.cpu_count() == 1
    assert host._cpu_quotas() == [0.5]


def test_without_limits_the_machine_is_the_limit(groups):
    groups(
        "5:memory:/\n4:cpu:/\n",
        {
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/memory.usage_in_bytes": "1",
            "cpu/cpu.cfs_quota_us": "-1",
            "cpu/cpu.cfs_period_us": "100000",
        },
    )
    assert host.cpu_count() == len(os.sched_getaffinity(0))
    assert host.memory_limit_bytes() == psutil.virtual_memory().total


def test_the_processor_is_read_from_cpuinfo(tmp_path, monkeypatch):
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text(
        "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nflags\t\t: sse avx2 avx512_bf16 fma\n\n"
        "processor\t: 1\nmodel name\t: Other\nflags\t\t: sse\n"
    )
    monkeypatch.setattr(host, "_CPU_INFO", cpu_info)
    assert host.cpu_model() == "Some CPU @ 2.0GHz"
    assert host.cpu_features() == ("avx2", "fma", "avx512_bf16")
    monkeypatch.setattr(host, "_CPU_INFO", tmp_path / "missing")
    assert host.cpu_features() == ()
    assert host.cpu_model()
