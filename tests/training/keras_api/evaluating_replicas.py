"""Evaluates and predicts over replicas, before and after a training, and on one device.

Run as a script with the Keras package and what `replica_cases.strategy_of` takes; it prints by how
much the figures and the predictions differ, as JSON: `{case: difference}`.
"""

import importlib
import json
import pathlib
import sys
import tempfile

import numpy as np
import replica_cases
import tensorflow as tf

import tfx_perf

ROWS, BATCH = 37, 12  # the last batch has one row
CASES = ("dataset", "arrays", "two_outputs", "own_mean", "weighted")


def model_of(keras, case):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(8, "relu")(inputs)
    if case == "dataset":  # it is trained: meanwhile each replica has its own averages
        hidden = keras.layers.BatchNormalization(momentum=0.5)(hidden)
    several = case == "two_outputs"
    names = ("first", "second")[: 2 if several else 1]  # by which the figures are sorted
    outputs = [keras.layers.Dense(1, name=name)(hidden) for name in names]
    model_class = _with_own_metrics(keras) if case == "own_metrics" else keras.Model
    model = model_class(inputs, outputs if several else outputs[0])
    loss = replica_cases.own_mean if case == "own_mean" else "mse"
    metrics = {} if several else {"metrics": ["mae"], "weighted_metrics": ["mse"]}
    model.compile(keras.optimizers.SGD(0.01), ["mse", "mae"] if several else loss, **metrics)
    return model


def _with_own_metrics(keras):
    class WithOwnMetrics(keras.Model):
        def compute_metrics(self, *arguments, **named):
            found = super().compute_metrics(*arguments, **named)
            return {**found, "twice": 2 * found["loss"]}

    return WithOwnMetrics


def data(case):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 8)), rng.normal(size=(ROWS, 1))
    y = (y, 2 * y) if case == "two_outputs" else y
    given = (x, y, rng.uniform(0.1, 2, size=ROWS)) if case == "weighted" else (x, y)
    if case == "arrays":
        return given
    found = tf.data.Dataset.from_tensor_slices(given).batch(BATCH)
    options = tf.data.Options()
    by_rows = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = by_rows
    return found.with_options(options)


def seen(model, case):
    """Returns the figures of an evaluation, and what the model predicts."""
    if case == "arrays":
        x, y = data(case)
        figures = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
        predicted = model.predict(x, batch_size=BATCH, verbose=0)
    else:
        figures = model.evaluate(data(case), verbose=0, return_dict=True)
        predicted = model.predict(data(case), verbose=0)
    return [*figures.values(), *tf.nest.flatten(predicted)]


def trained(keras, model):
    """Trains; returns the figures of the last validation, and what a callback has saved then.

    None where the first worker saves for all.
    """
    path = pathlib.Path(tempfile.mkdtemp(), "of.weights.h5")
    saving = keras.callbacks.ModelCheckpoint(str(path), save_weights_only=True)
    logs = model.fit(
        data("dataset").repeat(),
        validation_data=data("dataset"),
        steps_per_epoch=3,
        epochs=2,
        callbacks=[saving],
        verbose=0,
    ).history
    figures = [values[-1] for name, values in logs.items() if name.startswith("val_")]
    return figures, path if path.exists() else None


def main(package, replicas):
    keras = importlib.import_module(package)
    strategy = replica_cases.strategy_of(replicas)

    def of_replicas(case):
        with strategy.scope():
            return model_of(keras, case)

    def with_own_logs():  # which stay as Keras makes them
        return seen(of_replicas("own_metrics"), "own_metrics")

    found = {}
    expected = None if replicas == "workers" else with_own_logs()
    with tfx_perf.optimized({"training": {"tuning_seconds": 0}}):
        for case in CASES:
            model = of_replicas(case)
            alone = model_of(keras, case)
            pairs = [(seen(model, case), seen(alone, case))]
            if case == "dataset":
                validated, saved = trained(keras, model)
                alone.set_weights(model.get_weights())
                pairs.append((seen(model, case), seen(alone, case)))
                if saved is not None:
                    alone.load_weights(saved)
                figures = alone.evaluate(data(case), verbose=0, return_dict=True)
                pairs.append((validated, list(figures.values())))
            found[case] = max(replica_cases.difference(*pair) for pair in pairs)
        if expected is not None:
            found["own_metrics"] = replica_cases.difference(with_own_logs(), expected)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
