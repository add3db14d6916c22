"""What a machine without accelerators cannot train with is refused before anything is built."""

import pytest

from tfx_perf import errors
from tfx_perf.hardware import crowding, host
from tfx_perf.settings.distribution import DistributionSettings
from tfx_perf.training import machine_check

_NCCL = {"implementation": "nccl"}
_JOB = {
    "worker_count": 2, "image": "i", "shared_folder": "/a", "volumes": {"/a": "claim"}
}  # fmt: skip


def _check(**settings):
    machine_check.check(DistributionSettings.model_validate(settings))


@pytest.fixture(autouse=True)
def no_accelerators(monkeypatch):
    monkeypatch.setattr(host, "may_have_accelerators", lambda: False)
    for name in machine_check._TPU_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("settings", [{"strategy": "mirrored"}, {"workers": 2}])
def test_nccl_is_refused_where_replicas_of_this_machine_sum(settings):
    with pytest.raises(errors.UserError, match="Expected GPUs, to reduce with NCCL"):
        _check(collective=_NCCL, **settings)


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ({"workers": 128}, False),
        ({"workers": 129}, True),
        ({"workers": 126, "parameter_servers": 1}, False),  # and a coordinator
        ({"workers": 126, "parameter_servers": 2}, True),
        ({"job": {**_JOB, "worker_count": 10**6}}, False),  # on other machines
    ],
)
def test_more_workers_than_a_machine_can_run_are_refused(settings, is_refused, monkeypatch):
    monkeypatch.setattr(host, "cpu_count", lambda: 2)
    if not is_refused:
        _check(**settings)
        return
    with pytest.raises(errors.UserError, match=r"Expected at most 128 processes .* 129 processes"):
        _check(**settings)


def test_workers_that_share_cpus_are_remarked(monkeypatch):
    monkeypatch.setattr(host, "cpu_count", lambda: 2)
    assert crowding.remark(2) == ""
    assert crowding.remark(3).startswith("3 workers share 2 cores, ")


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"workers": 3}, 3),
        ({"workers": 3, "parameter_servers": 1}, 3),
        ({"workers": 3, "cpu_binding": "exclusive"}, 1),
        ({"job": _JOB}, 1),
        ({}, 1),
    ],
)
def test_workers_share_cpus_that_have_none_of_their_own(settings, count):
    assert DistributionSettings.model_validate(settings).workers_with_all_cpus == count


@pytest.mark.parametrize("name", [None, "local"])
def test_the_machines_own_tpu_is_refused(name, monkeypatch):
    if name is not None:
        monkeypatch.setenv("TPU_NAME", name)
    with pytest.raises(errors.UserError, match=r"Expected a TPU\. .*no accelerator.* TPU_NAME"):
        _check(strategy="tpu")


@pytest.mark.parametrize("variable", ["TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"])
def test_a_tpu_elsewhere_is_left_to_tensorflow(variable, monkeypatch):
    monkeypatch.setenv(variable, "grpc://10.0.0.2:8470")
    _check(strategy="tpu")


@pytest.mark.parametrize(
    "settings",
    [
        {"collective": _NCCL, "job": _JOB},  # other machines train
        {"collective": _NCCL, "workers": 2, "parameter_servers": 1},  # nothing is reduced
        {"collective": _NCCL},  # what the code makes is not known
        {"strategy": "mirrored"},
    ],
)
def test_what_may_train_is_not_refused(settings):
    _check(**settings)


def test_what_may_be_an_accelerator_is_left_to_tensorflow(monkeypatch):
    monkeypatch.setattr(host, "may_have_accelerators", lambda: True)
    _check(strategy="tpu")
    _check(strategy="mirrored", collective=_NCCL)
