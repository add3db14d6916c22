"""Workers that would each train alone are refused; `strategies` says what they were given."""

import keras
import pytest
import tensorflow as tf

from tfx_perf.components import training_job
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, interception


@pytest.fixture(scope="module")
def call():
    """A `fit` that is not carried out, of a model that no strategy was told of."""
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((tf.ones([2, 1]), tf.ones([2, 1])))
    return interception.capture_fit(lambda: model.fit(data, verbose=0))


def test_a_model_that_was_built_for_one_worker_is_not_trained_by_two(call):
    trained = []
    fit = training_job.checking_workers(trained.append, DistributionSettings(workers=2))
    with pytest.raises(errors.UserError, match=r"for 2 .* Received: no strategy, with") as caught:
        fit(call)
    assert "\n" not in str(caught.value)
    assert not trained
    training_job.checking_workers(trained.append, DistributionSettings())(call)
    assert trained == [call]


def test_a_model_that_was_built_beside_parameter_servers_is_not_trained_without(call):
    settings = DistributionSettings(workers=2, parameter_servers=1)
    fit = training_job.checking_workers(lambda call: None, settings)
    with pytest.raises(errors.UserError, match="ParameterServerStrategy.*Received: no strategy"):
        fit(call)


def test_an_error_of_the_users_passes_as_it_is(call):
    def fit(call):
        raise ValueError("of the user's")

    with pytest.raises(ValueError, match="of the user's"):
        training_job.checking_workers(fit, DistributionSettings())(call)


def test_a_mirrored_strategy_is_refused_only_while_the_workers_train():
    three = DistributionSettings(workers=3)
    with (
        training_job.refusing_mirrored(three),
        pytest.raises(errors.UserError, match="3 workers"),
    ):
        tf.distribute.MirroredStrategy(["CPU:0"])
    assert tf.distribute.MirroredStrategy(["CPU:0"]).num_replicas_in_sync == 1
