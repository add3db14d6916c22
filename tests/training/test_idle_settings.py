"""Settings that do nothing are named, under real strategies of one and of two replicas."""

import json

import pytest
import tensorflow as tf

from tests.training import script_forks
from tfx_perf import workers
from tfx_perf.settings.distribution import DistributionSettings
from tfx_perf.training import idle_settings

_TWO_REPLICAS = """
import json, sys
import tensorflow as tf
from tfx_perf.settings.distribution import DistributionSettings
from tfx_perf.training import idle_settings

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
settings = DistributionSettings.model_validate_json(sys.argv[1])
devices = ["CPU:0", "CPU:1"]
own = tf.distribute.ReductionToOneDevice()
strategies = [
    tf.distribute.MirroredStrategy(devices),
    tf.distribute.MirroredStrategy(devices, cross_device_ops=own),
]
print(json.dumps([idle_settings.of_distribution(settings, each) for each in strategies]))
"""


def idle(**settings):
    made = DistributionSettings.model_validate(settings)
    return idle_settings.of_distribution(made, tf.distribute.get_strategy())


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"reduction_dtype": "bfloat16"}, "reduction_dtype=bfloat16"),
        ({"collective": {"implementation": "nccl"}}, "collective.implementation=nccl"),
        ({"collective": {"bytes_per_pack": 9}}, "collective.bytes_per_pack=9"),
        ({"collective": {"timeout_seconds": 5}}, "collective.timeout_seconds=5.0"),
        ({"restarts": 1}, "restarts=1"),
        ({"cpu_binding": "exclusive"}, "cpu_binding=exclusive"),
        ({"start_timeout_seconds": 60}, "start_timeout_seconds=60.0"),
        ({"strategy": "mirrored"}, "strategy=mirrored"),
        ({"strategy": "model_parallel", "device_memory_bytes": 9}, "strategy=model_parallel"),
        ({"workers": 2}, "workers=2"),
        ({"workers": "auto"}, "workers=auto"),
    ],
)
def test_what_needs_several_replicas_or_workers_is_named_where_one_trains(settings, name):
    (found,) = idle(**settings)
    assert found.startswith(f"distribution.{name} has no effect: ")


def test_who_trains_alone_is_told_what_starts_the_workers(monkeypatch):
    launch = "; tfx-perf launch --workers 2 starts a script that builds it under tf."
    assert launch in " ".join(idle(workers=2))
    config = workers.config_of(workers.Worker(1, 2), hosts=["a:1", "b:1"])
    monkeypatch.setenv(workers.VARIABLE, config)
    (found,) = idle(workers=2)
    assert found.endswith("the code has built the model under no strategy")


@pytest.mark.parametrize("strategy", ["one_device", "model_parallel", "auto"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("reduction_dtype", "float16"), ("cpu_binding", "exclusive")],
)
def test_what_is_of_replicas_or_workers_is_named_beside_a_strategy_of_one(strategy, name, value):
    made = DistributionSettings.model_validate({"strategy": strategy, name: value})
    under = tf.distribute.get_strategy()
    if strategy == "model_parallel":
        under = tf.distribute.OneDeviceStrategy("CPU:0")
    (found,) = idle_settings.of_distribution(made, under)
    assert found.startswith(f"distribution.{name}={value} has no effect: ")


def test_mirrored_on_one_device_is_no_replica_more():
    made = DistributionSettings(strategy="mirrored")
    (found,) = idle_settings.of_distribution(made, tf.distribute.MirroredStrategy(["CPU:0"]))
    assert found == (
        "distribution.strategy=mirrored has no effect: the machine has one device; "
        "tf.config.set_logical_device_configuration makes several of its CPU"
    )


def test_what_is_as_by_default_is_not_named():
    assert idle() == idle(strategy="one_device", restarts=3) == idle(strategy="auto") == ()


def test_with_two_replicas_all_counts_but_what_cross_device_ops_do_not_take(tmp_path):
    settings = {"reduction_dtype": "float16", "collective": {"bytes_per_pack": 9}}
    (tmp_path / "script.py").write_text(_TWO_REPLICAS)
    done = script_forks.run(tmp_path / "script.py", json.dumps(settings))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [
        [],
        ["distribution.collective.bytes_per_pack=9 has no effect: the strategy has "
         "cross_device_ops that do not take it"],
    ]  # fmt: skip
