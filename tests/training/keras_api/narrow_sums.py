"""Trains one step with gradients that are summed in narrower types; run as a script.

Arguments: the Keras package, the number of virtual devices or `workers` (then `TF_CONFIG` says
which), and names of `cases`. Prints as JSON, for each case and type, the largest error of an update
over what `ROUNDINGS` explain, and for each type the bytes of a step.
"""

import importlib
import json
import sys

import numpy as np
import replica_cases
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, interception
from tfx_perf.distribute import reduction
from tfx_perf.training import model_flops
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning.choice import PlanChoice

# By how much two roundings, of a term and of the sum, may change it: twice half a last place.
ROUNDINGS = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
BATCH = replica_cases.BATCH
_SCALE = 2.0**10  # exact
_CLIP = 0.05
_CALLS = TrainingPlan(steps_per_execution=2)
_FUSED = TrainingPlan(steps_per_execution=2, fused_update=True)
_LONG = 60  # steps, after which the bytes are known


def cases(keras):
    """Returns what makes the optimizer, and the plan; all take steps of the gradient's length."""
    made = keras.optimizers
    scaling = keras.mixed_precision if keras.__name__ == "tf_keras" else made
    return {
        "sgd": (lambda: made.SGD(1.0), PLAIN_FIT),
        "calls": (lambda: made.SGD(1.0), _CALLS),
        "fused": (lambda: made.SGD(1.0, momentum=0.9), _FUSED),
        "sparse": (lambda: made.SGD(1.0), _CALLS),
        "clipped": (lambda: made.SGD(1.0, clipvalue=_CLIP), PLAIN_FIT),
        "scaled": (lambda: scaling.LossScaleOptimizer(made.SGD(1.0), initial_scale=_SCALE), _CALLS),
        "own_train_step": (lambda: made.SGD(1.0), _CALLS),
        "overflow": (
            lambda: scaling.LossScaleOptimizer(made.SGD(1.0), initial_scale=_SCALE),
            PLAIN_FIT,
        ),
    }


def model_of(keras, case, optimizer):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((3,) if case == "sparse" else (8,))
    hidden = inputs
    if case == "sparse":
        hidden = keras.layers.Flatten()(keras.layers.Embedding(5, 4)(inputs))
    hidden = keras.layers.Dense(8, "tanh")(hidden)
    kind = _own_train_step(keras) if case == "own_train_step" else keras.Model
    model = kind(inputs, keras.layers.Dense(2)(hidden))
    model.compile(optimizer, "mse")
    return model


def _own_train_step(keras):
    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                errors = tf.reduce_mean(tf.square(y - self(x, training=True)), axis=1)
                loss = tf.nn.compute_average_loss(errors, global_batch_size=BATCH)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"own_loss": loss}

    return Own


def batch_of(case):
    x, y = next(iter(replica_cases.data("sparse" if case == "sparse" else "sgd")))
    if case == "overflow":
        x = np.array(x)
        x[-1] = np.inf  # which the last replica gets
    return np.asarray(x), np.asarray(y)


def weights_of(model):
    return [tf.convert_to_tensor(each).numpy() for each in model.trainable_variables]


def gradients_of(model, batch, count):
    """Returns the gradient of each variable, and the sizes of the terms that replicas add up."""
    totals, sizes = [], []
    for x, y in zip(*(np.split(each, count) for each in batch), strict=True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(y - model(x))) / 2 / BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        totals.append([_dense(each) for each in gradients])
        sizes.append([_dense(each, of=tf.abs) for each in gradients])
    return [[sum(parts) for parts in zip(*each, strict=True)] for each in (totals, sizes)]


def _dense(gradient, of=tf.identity):
    if isinstance(gradient, tf.IndexedSlices):
        values = of(gradient.values)
        gradient = tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return tf.convert_to_tensor(gradient).numpy().astype("float64")
    return of(gradient).numpy().astype("float64")


def session_with(plan, dtype):
    session = TrainingSession(PerfConfig.from_dict({"distribution": {"reduction_dtype": dtype}}))
    session._choose = lambda call, loop: PlanChoice(plan=plan, plan_reason="given")
    return session


def fit(model, batch, session, *, steps):
    data = tf.data.Dataset.from_tensor_slices(batch).batch(BATCH).repeat()
    with interception.intercepting_fit(session.fit):
        model.fit(data, steps_per_epoch=steps, verbose=0)
    return session


def sums(strategy, dtype):
    """Returns what becomes of numbers that some types cannot hold, and the types of the sums."""
    values = tf.constant([6e4, 1e6, 1e-9, np.inf, np.nan])
    gradients = [values, tf.constant([1], tf.int32), tf.constant([1.5], tf.float16)]

    def of_replica():
        own = tf.nest.map_structure(tf.identity, gradients)
        add = tf.distribute.get_replica_context().all_reduce
        return reduction.narrow_sum(
            own, lambda given: [add("SUM", each) for each in given], dtype=dtype
        )

    found = tf.nest.map_structure(
        lambda value: strategy.experimental_local_results(value)[0],
        tf.function(lambda: strategy.run(of_replica))(),
    )
    means = found[0] / strategy.num_replicas_in_sync
    return [str(each) for each in means.numpy()], [each.dtype.name for each in found]


def refusal(keras, strategy):
    """Returns what is said to an optimizer whose gradients cannot be summed so, if there is one."""
    if keras.__name__ == "keras":
        return None
    with strategy.scope():
        model = model_of(keras, "sgd", keras.optimizers.legacy.SGD())
    try:
        fit(model, batch_of("sgd"), session_with(PLAIN_FIT, "bfloat16"), steps=2)
    except errors.UserError as error:
        return str(error)
    raise AssertionError("it was not refused")


def main(package, replicas, names):
    flops = model_flops.Flops(None, None, None)
    model_flops.count_flops = lambda model, batch: flops  # takes a second
    keras = importlib.import_module(package)
    strategy = replica_cases.strategy_of(replicas)
    count = strategy.num_replicas_in_sync
    found = {"errors": {}, "bytes": {}, "plans": [], "sums": {}}
    for case in names:
        optimizer, plan = cases(keras)[case]
        found["errors"][case] = {}
        for dtype, rounding in ROUNDINGS.items():
            with strategy.scope():
                model = model_of(keras, case, optimizer())
            before, batch = weights_of(model), batch_of(case)
            gradients = gradients_of(model_of(keras, case, "sgd"), batch, count)
            fit(model, batch, session_with(plan, dtype), steps=1)
            updates = [old - new for old, new in zip(before, weights_of(model), strict=True)]
            if case == "overflow":
                worst = max(np.max(np.abs(update)) for update in updates)
            else:
                limit = _CLIP if case == "clipped" else np.inf
                worst = 0.0
                for update, total, size in zip(updates, *gradients, strict=True):
                    error = np.abs(update - np.clip(total, -limit, limit))
                    worst = max(worst, np.max(error / (rounding * size + 1e-6)))
            found["errors"][case][dtype] = float(worst)
    for dtype in (None, *ROUNDINGS):
        found["sums"][str(dtype)] = sums(strategy, dtype)
        with strategy.scope():
            model = model_of(keras, "sgd", keras.optimizers.SGD(1e-3))
        record = fit(model, batch_of("sgd"), session_with(_CALLS, dtype), steps=_LONG).record
        found["bytes"][str(dtype)] = record.communication.reduced_bytes_per_step
        found["plans"].append(record.trained_with)
    if package == "keras":
        with strategy.scope():
            optimizer = keras.optimizers.SGD(1e-3, gradient_accumulation_steps=2)
            model = model_of(keras, "sgd", optimizer)
        record = fit(model, batch_of("sgd"), session_with(_CALLS, None), steps=_LONG).record
        found["bytes"]["accumulated"] = record.communication.reduced_bytes_per_step
    found["refusal"] = refusal(keras, strategy)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
