"""A strategy around the user's code, made by its name (`strategies`), gives way to its own."""

import importlib

import pytest
import tensorflow as tf

from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, interception
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
def test_models_are_built_under_that_of_the_settings_and_fit_is_called_outside(name, keras):
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


def test_its_own_scope_may_be_entered_once_more(keras):
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
def test_without_a_tpu_there_is_an_error_with_the_remedy(name, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    if name is not None:
        monkeypatch.setenv("TPU_NAME", name)
    with (
        pytest.raises(errors.UserError, match=r"distribution.strategy=tpu.* TPU_NAME") as caught,
        built_under(DistributionSettings(strategy="tpu")),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_workers_reduce_within_the_time_of_the_setting():
    with built_under(DistributionSettings(workers=2, collective_timeout_seconds=5.0)):
        made = tf.distribute.get_strategy()
        assert made.extended._communication_options.timeout_seconds == 5.0
