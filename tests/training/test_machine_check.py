"""What a machine without accelerators cannot train with is refused before anything is built."""

import pytest

from tfx_perf import errors
from tfx_perf.hardware import host
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
