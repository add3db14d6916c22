"""Workers that would each train alone are refused; `strategies` records their arguments."""

import keras
import pytest
import tensorflow as tf

from tfx_perf.components import training_job
from tfx_perf.config import PerfConfig
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, interception
from tfx_perf.training.speedups.plan import PLAIN_FIT


@pytest.fixture(scope="module")
def call():
    """A `fit` that is not run, of a model made outside of any strategy's scope."""
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((tf.ones([2, 1]), tf.ones([2, 1])))
    return interception.capture_fit(lambda: model.fit(data, verbose=0))


def fitted(call, fit, **settings):
    with training_job.for_all_workers(DistributionSettings(**settings)) as checked:
        return checked(fit)(call)


def test_a_model_that_was_built_for_one_worker_is_not_trained_by_two(call):
    trained = []
    with pytest.raises(errors.UserError, match=r"for 2 .* Received: no strategy, with") as caught:
        fitted(call, trained.append, workers=2)
    assert "\n" not in str(caught.value)
    assert not trained
    fitted(call, trained.append)
    assert trained == [call]


def test_a_model_that_was_built_beside_parameter_servers_is_not_trained_without(call):
    with pytest.raises(errors.UserError, match="ParameterServerStrategy.*Received: no strategy"):
        fitted(call, lambda call: None, workers=2, parameter_servers=1)


def test_a_mirrored_strategy_is_refused_only_while_the_workers_train():
    three = DistributionSettings(workers=3)
    with training_job.for_all_workers(three), pytest.raises(errors.UserError, match="3 workers"):
        tf.distribute.MirroredStrategy(["CPU:0"])
    assert tf.distribute.MirroredStrategy(["CPU:0"]).num_replicas_in_sync == 1


@pytest.mark.parametrize(("seconds", "left"), [(20.0, 100.0), (130.0, 0.0)])
def test_trials_leave_the_unused_rest_of_their_budget(seconds, left):
    properties = {"config": PerfConfig().to_json()}
    job = training_job.TrainingJob(inputs="{}", exec_properties=properties, code="", plan=PLAIN_FIT)
    assert job.after_trials(seconds).settings.training.tuning_seconds == left
