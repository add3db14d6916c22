"""The cluster job to which a training is handed."""

import itertools

import pytest

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors

_MOUNTED = {"spec": {"containers": [{"name": "tensorflow", "volumeMounts": [{"mountPath": "/a"}]}]}}
_ON_NODE = {"spec": {"containers": [{"name": "node", "resources": {"limits": {"memory": "2Gi"}}}]}}


def _with(**fields):
    return {"spec": {"containers": [{"name": "tensorflow", **fields}]}}


def _job(**changes):
    own = {"worker_count": 2, "image": "i", "shared_folder": "/a/b", "pod_template": _MOUNTED}
    return {"job": {**own, **changes}}


def read(distribution):
    return PerfConfig.from_dict({"distribution": distribution})


def test_a_job_on_a_cluster():
    job = read(_job()).distribution.job
    assert (job.kind, job.worker_count) == ("TFJob", 2)
    train_job = {"kind": "TrainJob", "runtime": "tfx-perf", "pod_template": _ON_NODE}
    settings = read(_job(**train_job))
    assert settings.distribution.job.container["resources"] == {"limits": {"memory": "2Gi"}}
    assert PerfConfig.from_json(settings.to_json("distribution")) == settings


def test_workers_on_this_machine():
    settings = read({"workers": 3}).distribution
    assert (settings.worker_count, settings.restarts) == (3, 3)
    assert read(_job()).distribution.worker_count == 2
    assert PerfConfig().distribution.worker_count == 1


def test_how_replicas_reduce():
    assert PerfConfig().distribution.reduction_dtype is None
    own = {"reduction_dtype": "float16", "workers": 2}
    settings = read({**own, "collective_timeout_seconds": 20})
    assert settings.distribution.collective_timeout_seconds == 20.0
    assert PerfConfig.from_json(settings.to_json("distribution")) == settings


@pytest.mark.parametrize(
    ("settings", "made"),
    [
        ({}, None),
        ({"strategy": "auto"}, None),
        ({"strategy": "one_device"}, "one_device"),
        ({"strategy": "mirrored"}, "mirrored"),
        ({"strategy": "tpu"}, "tpu"),
        ({"strategy": "model_parallel", "device_memory_bytes": 2**30}, "model_parallel"),
        ({"workers": 2}, "multi_worker"),
        ({"strategy": "multi_worker", **_job()}, "multi_worker"),
    ],
)
def test_the_strategy_that_is_made(settings, made):
    assert read(settings).distribution.effective_strategy == made


_STRATEGIES = [
    "one_device", "mirrored", "model_parallel", "multi_worker", "parameter_server", "tpu", "auto"
]  # fmt: skip
_ALL = [
    *(("strategy", name) for name in _STRATEGIES),
    ("workers", 2),
    ("parameter_servers", 1),
    ("device_memory_bytes", 2**30),
    ("reduction_dtype", "bfloat16"),
]
_NONE = "Expected multi_worker, or no strategy at all"
# Settings that go together; a setting that is not listed here needs no other.
_TAKES = {
    ("strategy", "multi_worker"): {("workers", 2)},
    # The workers beside the servers are listed too: no pair is enough.
    ("strategy", "parameter_server"): set(),
    ("parameter_servers", 1): {("workers", 2)},
    ("device_memory_bytes", 2**30): {("strategy", "model_parallel")},
}


@pytest.mark.parametrize(
    "pair",
    [pair for pair in itertools.combinations(_ALL, 2) if pair[0][0] != pair[1][0]],
    ids=lambda pair: "-".join(f"{name}={value}" for name, value in pair),
)
def test_of_two_settings_each_finds_the_other_or_a_remedy_is_named(pair):
    first, second = pair
    lacks = any(
        one in _TAKES and other not in _TAKES[one] for one, other in (pair, (second, first))
    )
    # Each of both says what trains.
    strategy, workers = first, second[0] == "workers"
    contradict = strategy[0] == "strategy" and workers and pair != (
        ("strategy", "multi_worker"), ("workers", 2)
    )  # fmt: skip
    if not lacks and not contradict:
        read(dict(pair))
        return
    remedy = r"Received: distribution.*\. (Leave|Remove|Set) .*\.$"
    with pytest.raises(errors.UserError, match=remedy):
        read(dict(pair))


@pytest.mark.parametrize(
    ("distribution", "words"),
    [
        ({"reduction_dtype": "int8"}, ["bfloat16", "reduction_dtype='int8'"]),
        ({"top_k_ratio": 0.1}, ["was removed", "reduction_dtype: bfloat16"]),
        ({"collective": {"implementation": "nccl"}}, ["was removed", "CommunicationOptions"]),
        ({"collective_timeout_seconds": 0}, ["above 0", "collective_timeout_seconds=0"]),
        ({"collective_timeout_seconds": 9}, ["only beside workers or a job", "CommunicationOpt"]),
        ({"workers": 1}, ["at least 2 workers", "distribution={'workers': 1}"]),
        ({"workers": "all"}, ["whole number", "workers='all'"]),
        ({"parameter_servers": 1}, ["parameter_servers beside a number of work"]),
        (_job(parameter_server_count=0), ["job.parameter_server_count=0"]),
        (_job(kind="TrainJob", runtime="x", pod_template={}, parameter_server_count=1),
         ["no parameter_server_count for a TrainJob, which has no such role"]),
        ({"workers": 2, "restarts": -1}, ["distribution.restarts=-1"]),
        ({"cpu_binding": "none"}, ["was removed. Start a script with `tfx-"]),
        ({"workers": 2, **_job(image=None)},
         ["Expected a job, or workers on this machine, not both", "job or workers out."]),
        ({"parameter_servers": 1, "workers": "Auto", "job": {}},
         ["a job, or workers and parameter_servers on", "job or workers, parameter_servers out"]),
        ({"strategy": "all"}, ["one_device", "distribution.strategy='all'"]),
        ({"strategy": "multi_worker"}, ["workers or a job"]),
        ({"strategy": "mirrored", "device_memory_bytes": 1024},
         ["device_memory_bytes only beside strategy=model_parallel"]),
        ({"strategy": "model_parallel", "workers": 2}, [_NONE, "strategy='model_parallel'"]),
        ({"strategy": "mirrored", "workers": 2}, [_NONE, "distribution.strategy='mirrored'"]),
        ({"strategy": "auto", "workers": 2},
         ["or workers", "distribution.strategy='auto'", "remove distribution.workers"]),
        ({"strategy": "auto", **_job()}, ["or workers", "remove distribution.job"]),
        ({"strategy": "tpu", **_job()}, [_NONE, "distribution.strategy='tpu'"]),
        ({"strategy": "parameter_server", "workers": 2},
         ["parameter_servers with the strategy parameter_server"]),
        ({"strategy": "multi_worker", "workers": 2, "parameter_servers": 1},
         ["Expected parameter_server, or no strategy at all, beside parameter servers in"]),
        (_job(worker_count=1), ["at least 2 workers, or parameter servers beside one"]),
        (_job(shared_folder="jobs"), ["an absolute folder", "job.shared_folder='jobs'"]),
        (_job(shared_folder="/elsewhere"), ["Expected shared_folder in one of the volumeMounts"]),
        (_job(cpu=2), ["one of the keys image, ", "pod_template", "job.cpu=2"]),
        (_job(pod_template={"containers": []}), ["metadata and spec, as in a PodTemplateSpec"]),
        (_job(pod_template={"spec": {"containers": [{}]}}), ["a name for each container"]),
        (_job(pod_template=_with(volumeMounts={"/data": "claim"})), ["lists of keys with values"]),
        (_job(pod_template=_with(volumeMounts=["/data"])), ["lists of keys with values"]),
        (_job(pod_template=_with(env={"A": "b"})), ["in env and volumeMounts, as Kubernetes"]),
        (_job(image=None), ["an image for a TFJob"]),
        (_job(runtime="x", image=None), ["no runtime, which is for a TrainJob"]),
        (_job(kind="TrainJob"), ["the name of a TrainingRuntime"]),
        (_job(kind="TrainJob", runtime="x"), ["Expected env and resources of the container node"]),
    ],
)  # fmt: skip
def test_an_impossible_job_is_refused(distribution, words):
    with pytest.raises(errors.UserError) as caught:
        read(distribution)
    for word in words:
        assert word in str(caught.value)
