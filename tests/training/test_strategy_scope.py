"""A strategy made by its name (`strategies`) around the user's code, which may use its own.

Settings without effect are named.
"""

import importlib

import pytest
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, interception, workers
from tfx_perf.training.replicas import strategies
from tfx_perf.training.session import built_under

pytestmark = pytest.mark.each_choice

DEFAULT = tf.distribute.get_strategy()
MIRRORED = DistributionSettings(strategy="mirrored")


@pytest.fixture(params=["keras", "tf_keras"])
def keras(request):
    return importlib.import_module(request.param)


def built(keras):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def fitted(model):
    data = tf.data.Dataset.from_tensors((tf.ones([2, 1]), tf.ones([2, 1])))
    return model.fit(data, verbose=0)


@pytest.mark.parametrize("name", ["mirrored", "one_device", None])
def test_models_are_built_under_the_configured_strategy_and_fit_is_called_outside(name, keras):
    seen = []

    def handler(call):
        seen.append((call.model.distribute_strategy, tf.distribute.has_strategy()))
        return call.proceed()

    settings = DistributionSettings(strategy=name)
    with built_under(settings) as outside, interception.intercepting_fit(outside(handler)):
        within = tf.distribute.get_strategy()
        for _ in range(2):
            assert fitted(built(keras)).history["loss"]
            assert tf.distribute.get_strategy() is within
    assert isinstance(within, tf.distribute.MirroredStrategy) == (name == "mirrored")
    assert seen == [(within, False)] * 2
    assert not tf.distribute.has_strategy()


@pytest.mark.parametrize("enter", ["scope", "experimental_set_strategy"])
@pytest.mark.parametrize("name", ["mirrored", "one_device"])
@pytest.mark.parametrize("is_made_before", [True, False])
def test_it_gives_way_to_the_strategy_of_the_code(name, enter, is_made_before, keras):
    own = tf.distribute.OneDeviceStrategy("CPU:0")
    found = []
    with (
        built_under(DistributionSettings(strategy=name)) as outside,
        interception.intercepting_fit(outside(found.append)),
    ):
        if not is_made_before:
            own = tf.distribute.OneDeviceStrategy("CPU:0")
        if enter == "scope":
            with own.scope():
                fitted(built(keras))
            assert not tf.distribute.has_strategy()
        else:
            tf.distribute.experimental_set_strategy(own)
            fitted(built(keras))
            tf.distribute.experimental_set_strategy(None)
    assert [call.model.distribute_strategy for call in found] == [own]


def test_its_own_scope_may_be_entered_again(keras):
    with built_under(MIRRORED):
        within = tf.distribute.get_strategy()
        with within.scope():
            assert built(keras).distribute_strategy is within
        assert tf.distribute.get_strategy() is within


def test_nothing_is_left_of_it_after_an_error(keras):
    own_scope = tf.distribute.Strategy.scope

    def fail(call):
        raise ValueError("planned")

    with (
        pytest.raises(ValueError, match="planned"),
        built_under(MIRRORED) as outside,
        interception.intercepting_fit(outside(fail)),
    ):
        fitted(built(keras))
    assert tf.distribute.get_strategy() is DEFAULT
    assert tf.distribute.Strategy.scope is own_scope


@pytest.mark.parametrize("name", [None, "local"])
def test_without_a_tpu_there_is_an_error_with_a_remedy(name, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    if name is not None:
        monkeypatch.setenv("TPU_NAME", name)
    with (
        pytest.raises(errors.UserError, match=r"distribution.strategy=tpu.* TPU_NAME") as caught,
        built_under(DistributionSettings(strategy="tpu")),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_workers_reduce_within_the_configured_timeout():
    with built_under(DistributionSettings(workers=2, collective_timeout_seconds=5.0)):
        made = tf.distribute.get_strategy()
        assert made.extended._communication_options.timeout_seconds == 5.0


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
def test_settings_for_several_replicas_or_workers_are_named_if_one_trains(settings, name):
    (found,) = idle(**settings)
    assert found.startswith(f"distribution.{name} has no effect: ")


def test_a_lone_process_learns_how_to_start_the_workers(monkeypatch):
    launch = "; tfx-perf launch --workers 2 starts a script that builds it under tf."
    assert launch in " ".join(idle(workers=2))
    config = workers.configs_of(["a:1", "b:1"])["worker 1"]
    monkeypatch.setenv(workers.VARIABLE, config)
    (found,) = idle(workers=2)
    assert found.endswith("the code has built the model under no strategy")


def test_mirrored_on_one_device_adds_no_replica():
    (found,) = idle(tf.distribute.MirroredStrategy(["CPU:0"]), strategy="mirrored")
    assert found == (
        "distribution.strategy=mirrored has no effect: the machine has one device; "
        "tf.config.set_logical_device_configuration makes several of its CPU"
    )


def test_settings_that_equal_the_default_are_not_named():
    assert idle() == idle(strategy="one_device", restarts=3) == idle(strategy="auto") == ()
    assert idle(tf.distribute.OneDeviceStrategy("CPU:0"), strategy="model_parallel") == ()


@pytest.mark.parametrize("strategy", ["one_device", "model_parallel", "auto"])
def test_settings_of_replicas_are_named_beside_a_strategy_of_one(strategy):
    under = tf.distribute.OneDeviceStrategy("CPU:0") if strategy == "model_parallel" else None
    (found,) = idle(under, strategy=strategy, reduction_dtype="float16")
    assert found.startswith("distribution.reduction_dtype=float16 has no effect: ")
