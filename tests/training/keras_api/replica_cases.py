"""Trains on one device, and over several replicas, which must be made before TensorFlow starts.

Run as a script with the Keras package, the number of virtual devices or `workers` (then `TF_CONFIG`
says which), names in `PLANS`, and cases unless it is all of them; it prints by how much weights and
logs differ, as JSON: `{case: {plan: difference}}`.
"""

import contextlib
import functools
import importlib
import json
import sys

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups import fused_update, precision
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning.choice import PlanChoice

BATCH, EPOCHS, STEPS = 48, 2, 10  # divided by 2, 3 and 4
ROWS = 240
PLANS = {
    "plain": PLAIN_FIT,
    "calls": TrainingPlan(steps_per_execution=4),
    "fused": TrainingPlan(steps_per_execution=4, fused_update=True),
    "xla": TrainingPlan(steps_per_execution=4, xla=True),
    "sliced": TrainingPlan(steps_per_execution=4, micro_batches=3),
    "bfloat16": TrainingPlan(steps_per_execution=4),
    "float16": TrainingPlan(steps_per_execution=4),
}
POLICIES = {"bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
NARROW = ("sgd", "clipnorm", "sparse", "short_batch", "weighted")  # with all policies
LAST_BATCHES = {
    "short_batch": 12,
    "short_sparse": 12,
    "uneven_batch": 13,
    "single_row": 1,
    "normalized": 1,
    "calls_keras_step": 13,
    "no_rows_convolved": 1,
    "no_rows_added_loss": 1,
    "uneven_outputs": 13,
    "uneven_weights": 13,
    "noise": 13,
    "noise_of_one": 1,
}
NOISY = ("noise", "noise_of_one")  # by the row
SEVERAL_OUTPUTS = ("two_outputs", "uneven_outputs")
SGD = ("sgd", "regularized", "weighted", "short_batch", "indivisible", "own_mean",
       "calls_keras_step")  # fmt: skip
MOMENTUM = (*NOISY, *SEVERAL_OUTPUTS, "single_row", "normalized", "uneven_weights",
            "no_rows_convolved", "no_rows_added_loss")  # fmt: skip
_AVERAGING = {"use_ema": True, "ema_momentum": 0.9}
ADAM = {
    "clipnorm": {"clipnorm": 0.1},
    **dict.fromkeys(
        ("global_clipnorm", "uneven_batch", "sparse", "short_sparse"), {"global_clipnorm": 0.1}
    ),
    "moving_average": _AVERAGING,
    "overwritten": {**_AVERAGING, "ema_overwrite_frequency": 3},
}
FUSED = {*MOMENTUM, *ADAM, "weight_decay", "accumulated"}  # which may be by one kernel
_OVERFLOWS = 2.0**110


def optimizers(keras):
    made = keras.optimizers
    scaling = keras.mixed_precision if keras.__name__ == "tf_keras" else made
    # In the last epoch a window begins that does not end.
    accumulating = {
        "accumulated": lambda: made.Adam(
            0.05, gradient_accumulation_steps=3, global_clipnorm=0.1, weight_decay=0.01
        ),
        "accumulated_sparse": lambda: made.SGD(0.05, gradient_accumulation_steps=3),
        "accumulated_overflow": lambda: scaling.LossScaleOptimizer(
            made.SGD(1e-8, gradient_accumulation_steps=3), initial_scale=_OVERFLOWS
        ),
        "accumulated_average": lambda: made.SGD(
            0.05, gradient_accumulation_steps=3, use_ema=True, ema_overwrite_frequency=2
        ),
    }
    return {
        **({} if keras.__name__ == "tf_keras" else accumulating),
        **{case: lambda: made.SGD(0.05) for case in SGD},
        **{case: lambda: made.SGD(0.05, momentum=0.9) for case in MOMENTUM},
        **{case: functools.partial(made.Adam, 0.05, **given) for case, given in ADAM.items()},
        "clipvalue": lambda: made.SGD(0.05, clipvalue=0.05),
        "weight_decay": lambda: made.AdamW(0.05, weight_decay=0.1, global_clipnorm=0.1),
        "overflow": lambda: scaling.LossScaleOptimizer(made.SGD(1e-8), initial_scale=_OVERFLOWS),
        "own_apply_gradients": lambda: _own_apply_gradients(made)(0.05, clipnorm=0.1),
        "around_another": lambda: _around_another(made)(made.Adam(0.05, clipnorm=0.1)),
        "own_train_step": lambda: made.SGD(0.05, clipnorm=0.1),
    }


def _own_apply_gradients(made):
    class Own(made.SGD):
        def apply_gradients(self, grads_and_vars, **named):
            pairs = [(2 * gradient, variable) for gradient, variable in grads_and_vars]
            return super().apply_gradients(pairs, **named)

    return Own


def _around_another(made):
    class Around(made.SGD):
        """Delegates to another optimizer."""

        def __init__(self, base):
            super().__init__(0.0)
            self.base = base

        def build(self, variables):
            super().build(variables)
            self.base.build(variables)

        def apply_gradients(self, grads_and_vars, **named):
            return self.base.apply_gradients(grads_and_vars, **named)

    return Around


def _own_train_step(keras):
    class Own(keras.Model):
        """Has an optimizer of its own beside that of `compile`."""

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                errors = tf.reduce_mean(tf.square(y - self(x, training=True)), axis=1)
                loss = tf.nn.compute_average_loss(errors, global_batch_size=BATCH)
            weights = self.trainable_variables
            gradients = tape.gradient(loss, weights)
            self.second.apply_gradients(zip(gradients[:2], weights[:2], strict=True))
            self.optimizer.apply_gradients(zip(gradients[2:], weights[2:], strict=True))
            is_averaged = keras.__name__ == "keras"  # tf_keras sums the logs of replicas
            count = tf.distribute.get_strategy().num_replicas_in_sync if is_averaged else 1
            return {"own_loss": loss * count}

    return Own


def _calls_keras_step(keras):
    class Calling(keras.Model):
        """Adds something to what Keras does."""

        def train_step(self, data):
            return super().train_step(data)

    return Calling


def _adding_loss(keras):
    class Adding(keras.layers.Layer):
        """Adds a mean over the rows to the loss."""

        def call(self, inputs):
            self.add_loss(tf.reduce_mean(tf.square(inputs)))
            return inputs

    return Adding


def data(case):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 8)).astype("float32")
    y = (x[:, :2] * 3 + rng.normal(size=(ROWS, 2))).astype("float32")
    weights = rng.uniform(0.1, 2, size=ROWS).astype("float32")
    if case.endswith("overflow"):
        x[BATCH - 1 :: BATCH] = 1e4  # the last replica gets it
    parts = (x, y, weights) if case in ("weighted", "uneven_weights") else (x, y)
    if case.endswith("sparse"):
        parts = rng.integers(0, 5, size=(ROWS, 3)), y
    if case in SEVERAL_OUTPUTS:
        parts = x, (y[:, :1], y[:, 1:])
    found = tf.data.Dataset.from_tensor_slices(parts)
    if case in LAST_BATCHES:
        found = found.take(ROWS - BATCH + LAST_BATCHES[case])
    return found.batch(BATCH + 1 if case == "indivisible" else BATCH).repeat()


def model_of(keras, case):
    keras.utils.set_random_seed(3)
    regularizer = keras.regularizers.L2(0.1) if case == "regularized" else None
    inputs = keras.Input((3,) if case.endswith("sparse") else (8,))
    hidden = inputs
    if case.endswith("sparse"):
        hidden = keras.layers.Flatten()(keras.layers.Embedding(5, 4)(inputs))
    hidden = keras.layers.Dense(8, "relu", kernel_regularizer=regularizer)(hidden)
    if case == "normalized":
        hidden = keras.layers.BatchNormalization()(hidden)
    if case == "no_rows_convolved":
        hidden = keras.layers.Reshape((4, 2))(hidden)
        hidden = keras.layers.Flatten()(keras.layers.Conv1D(2, 3)(hidden))
    if case in NOISY:
        hidden = keras.layers.Dropout(0.3)(keras.layers.GaussianNoise(0.5)(hidden))
        hidden = keras.layers.AlphaDropout(0.1)(hidden)
        hidden = keras.layers.Reshape((4, 2))(keras.layers.GaussianDropout(0.2)(hidden))
        hidden = keras.layers.Flatten()(keras.layers.SpatialDropout1D(0.3)(hidden))
    if case == "noise_of_one":
        hidden = keras.layers.Reshape((4, 2))(hidden)
        hidden = keras.layers.LSTM(4, dropout=0.2, recurrent_dropout=0.2)(hidden)
    if case == "no_rows_added_loss":
        hidden = _adding_loss(keras)()(hidden)
    several = case in SEVERAL_OUTPUTS
    names = ("first", "second")  # Keras sorts logs by them, and numbers sort as text
    outputs = [keras.layers.Dense(1, name=name)(hidden) for name in names] if several else None
    own = {"own_train_step": _own_train_step, "calls_keras_step": _calls_keras_step}
    own = own[case](keras) if case in own else keras.Model
    model = own(inputs, outputs or keras.layers.Dense(2)(hidden))
    model.second = optimizers(keras)[case]()
    has_none = several or case == "own_train_step"
    metrics = {} if has_none else {"metrics": ["mae"], "weighted_metrics": ["mse"]}
    loss = ["mse", "mae"] if several else own_mean if case == "own_mean" else "mse"
    if case == "uneven_weights" and keras.__name__ == "keras":
        loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    model.compile(optimizers(keras)[case](), loss, **metrics)
    if case == "own_train_step":
        model.second.build(model.trainable_variables[:2])
    return model


def own_mean(y_true, y_pred):
    return tf.reduce_mean(tf.square(y_true - y_pred))


def trained(model, case):
    history = model.fit(data(case), steps_per_epoch=STEPS, epochs=EPOCHS, verbose=0).history
    weights = [np.asarray(tf.convert_to_tensor(weight)) for weight in model.weights]
    return [*weights, *map(np.asarray, history.values())]


def difference(ours, expected):
    """Returns the largest, relative to values above 1; infinite if there is a NaN."""
    pairs = zip(ours, expected, strict=True)
    largest = np.max([np.max(np.abs(a - b) / np.maximum(1, np.abs(b))) for a, b in pairs])
    return float(np.nan_to_num(largest, nan=np.inf))


def strategy_of(replicas):
    if replicas == "workers":
        return tf.distribute.MultiWorkerMirroredStrategy()
    virtual = [tf.config.LogicalDeviceConfiguration()] * int(replicas)
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], virtual)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(int(replicas))])


def planned(name, case, *, slices=1):
    """Returns a session that trains with a plan, where it is possible, in slices of a batch."""
    plan = PLANS[name].model_copy(update={"micro_batches": slices}) if slices > 1 else PLANS[name]
    given = {"sharding_invariant_random": case in NOISY}
    session = TrainingSession(PerfConfig.from_dict({"distribution": given}))

    def choose(call, loop):
        optimizer = call.model.optimizer
        is_own = loop.keras_api.overrides_train_step(call.model)
        is_fused = fused_update.is_possible(optimizer, loop.keras_api) and not is_own
        is_sliced = plan.micro_batches > 1
        compiles_long = case == "noise_of_one"  # a recurrent layer with dropout: minutes
        if (plan.fused_update and not is_fused) or (plan.xla and (is_own or compiles_long)):
            raise NotPossible
        if is_sliced and loop.functions.slicing_obstacle:
            raise NotPossible
        return PlanChoice(plan=plan, plan_reason="given")

    session._choose = choose
    return session


class NotPossible(Exception):
    pass


def trained_on_one_device(keras, case, name, *, replica_count):
    """Returns what Keras' `fit` comes to; with draws that it alone has not, in a session.

    So it does in a type of 16 bits, in which sums of other rows would be rounded, or overflow, in
    another way: there each slice of a batch is what a replica has.
    """
    model = model_of(keras, case)
    is_compiled = PLANS[name].xla  # XLA has another generator
    is_narrow = name in POLICIES
    is_plain = case not in NOISY or (keras.__name__ == "keras" and not is_compiled)
    if is_plain and not is_narrow:
        return trained(model, case)
    slices = replica_count if is_narrow else 1
    session = planned(name if is_compiled or is_narrow else "plain", case, slices=slices)
    with interception.intercepting_fit(session.fit):
        return trained(model, case)


def main(package, replicas, names):
    keras = importlib.import_module(package)
    strategy = strategy_of(replicas)
    found = {}
    plans = [name for name in names if name in PLANS]
    for case in [name for name in names if name not in PLANS] or optimizers(keras):
        results, expected = {}, {}
        of_plan = {name: (POLICIES.get(name), case in NOISY and PLANS[name].xla) for name in plans}
        for name in plans:
            policy = POLICIES.get(name)
            if policy and case not in NARROW:
                continue
            with precision.policy(policy):
                with strategy.scope():
                    model = model_of(keras, case)
                with (
                    contextlib.suppress(NotPossible),
                    interception.intercepting_fit(planned(name, case).fit),
                ):
                    results[name] = trained(model, case)
                if name in results and of_plan[name] not in expected:
                    expected[of_plan[name]] = trained_on_one_device(
                        keras, case, name, replica_count=strategy.num_replicas_in_sync
                    )
        if case == "normalized" and results:  # by each replica's own rows
            expected = {key: [np.zeros(())] * len(each) for key, each in expected.items()}
            results = {
                name: [np.where(np.isfinite(each).all(), 0, np.inf) for each in result]
                for name, result in results.items()
            }
        found[case] = {
            name: difference(result, expected[of_plan[name]]) for name, result in results.items()
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
