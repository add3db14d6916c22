"""Settings that do nothing are named; see `strategies`."""


import pytest
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import workers
from tfx_perf.training.replicas import strategies


def idle(under=None, **settings):
    made = PerfConfig.from_dict({"distribution": settings})
    return strategies.idle_settings(made, under or tf.distribute.get_strategy())


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"reduction_dtype": "bfloat16"}, "reduction_dtype=bfloat16"),
        ({"strategy": "mirrored"}, "strategy=mirrored"),
        ({"strategy": "model_parallel", "device_memory_bytes": 9}, "strategy=model_parallel"),
        ({"workers": 2}, "workers=2"),
        ({"restarts": 1}, "restarts=1"),
        ({"start_timeout_seconds": 60}, "start_timeout_seconds=60.0"),
        ({"heartbeat_timeout_seconds": 5}, "heartbeat_timeout_seconds=5.0"),
    ],
)
def test_what_needs_several_replicas_or_workers_is_named_where_one_trains(settings, name):
    (found,) = idle(**settings)
    assert found.startswith(f"distribution.{name} has no effect: ")


def test_who_trains_alone_is_told_what_starts_the_workers(monkeypatch):
    launch = "; tfx-perf launch --workers 2 starts a script that builds it under tf."
    assert launch in " ".join(idle(workers=2))
    config = workers.configs_of(["a:1", "b:1"])["worker 1"]
    monkeypatch.setenv(workers.VARIABLE, config)
    (found,) = idle(workers=2)
    assert found.endswith("the code has built the model under no strategy")


def test_mirrored_on_one_device_is_no_replica_more():
    (found,) = idle(tf.distribute.MirroredStrategy(["CPU:0"]), strategy="mirrored")
    assert found == (
        "distribution.strategy=mirrored has no effect: the machine has one device; "
        "tf.config.set_logical_device_configuration makes several of its CPU"
    )


def test_what_is_as_by_default_is_not_named():
    assert idle() == idle(strategy="one_device", restarts=3) == idle(strategy="auto") == ()
    assert idle(tf.distribute.OneDeviceStrategy("CPU:0"), strategy="model_parallel") == ()


@pytest.mark.parametrize("strategy", ["one_device", "model_parallel", "auto"])
def test_what_is_of_replicas_is_named_beside_a_strategy_of_one(strategy):
    under = tf.distribute.OneDeviceStrategy("CPU:0") if strategy == "model_parallel" else None
    (found,) = idle(under, strategy=strategy, reduction_dtype="float16")
    assert found.startswith("distribution.reduction_dtype=float16 has no effect: ")
