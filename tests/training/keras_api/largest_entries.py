"""Sums the largest entries of gradients over replicas; run as a script.

Arguments: the Keras package, the number of virtual devices or `workers` (then `TF_CONFIG` says
which), and the types of values. Prints as JSON, for each type, what `of_steps` and `of_overflow`
return, and what a step sends.
"""

import importlib
import json
import sys

import narrow_sums
import numpy as np
import replica_cases
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.training.keras_api import top_k
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.trials.choice import PlanChoice

SHAPE, RATIO, STEPS = (64, 32), 0.01, 7


class Optimizer:
    """Keeps residuals."""


def gradient_of(step, replica):
    """Returns a gradient; some of its entries are too large for float16."""
    rng = np.random.default_rng([step, replica])
    return (rng.normal(size=SHAPE) * 10.0 ** rng.integers(-3, 6, size=SHAPE)).astype("float32")


class Replicas:
    """Sum gradients step by step."""

    def __init__(self, strategy, dtype):
        self._strategy, optimizer = strategy, Optimizer()
        self._sums = top_k.TopK(optimizer, ratio=RATIO, dtype=dtype)
        self._optimizer = optimizer
        with strategy.scope():
            self._weight = tf.Variable(tf.zeros(SHAPE))
        self._run = tf.function(lambda steps: strategy.run(self._summed, args=(steps,)))

    def _summed(self, steps):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        gradient = tf.gather(steps, replica)
        (total,) = self._sums.summed([gradient], [self._weight], finite=tf.constant(True))
        (residual,) = top_k.residuals_in(self._optimizer)
        return total, tf.convert_to_tensor(residual)

    def sum(self, gradients):
        """Returns the sum that the first replica here gets, and all residuals."""
        totals, residuals = self._run(tf.constant(gradients))
        gathered = self._strategy.gather(
            self._strategy.run(lambda each: each[tf.newaxis], args=(residuals,)), axis=0
        )
        return self._strategy.experimental_local_results(totals)[0].numpy(), gathered.numpy()


def of_steps(strategy, dtype):
    """Returns by how much what was sent and is left differs from the sum, and what was sent."""
    count, replicas = strategy.num_replicas_in_sync, Replicas(strategy, dtype)
    sent, expected, most = np.zeros(SHAPE), np.zeros(SHAPE), 0
    for step in range(STEPS):
        gradients = [gradient_of(step, replica) for replica in range(count)]
        total, residuals = replicas.sum(gradients)
        expected += np.sum(gradients, axis=0, dtype="float64")
        sent += total
        most = max(most, int(np.count_nonzero(total)))
    error = np.abs(sent + residuals.sum(axis=0, dtype="float64") - expected)
    size = STEPS * count * 1e6  # of the largest that were added
    return {"error": float(error.max() / size), "most": most / count / np.prod(SHAPE)}


def of_overflow(strategy, dtype):
    """Returns whether an infinite gradient of the last replica is seen, and leaves no trace."""
    count, replicas = strategy.num_replicas_in_sync, Replicas(strategy, dtype)
    first = [gradient_of(0, replica) for replica in range(count)]
    _, before = replicas.sum(first)
    infinite = [np.array(each) for each in first]
    infinite[-1][3, 4] = np.inf
    total, after = replicas.sum(infinite)
    return [not np.isfinite(total).all(), bool((before == after).all()), bool(before.any())]


def bytes_of_step(keras, strategy, dtype):
    """Returns what a step sends of a model with weights of 2,048 entries, and with 610 others."""
    keras.utils.set_random_seed(3)
    with strategy.scope():
        inputs = keras.Input((8,))
        hidden = keras.layers.Dense(32)(keras.layers.Dense(64, use_bias=False)(inputs))
        model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
        model.compile(keras.optimizers.SGD(1e-3), "mse")
    asked = {"reduction_dtype": dtype, "top_k_ratio": RATIO}
    session = TrainingSession(PerfConfig.from_dict({"distribution": asked}))
    plan = TrainingPlan(steps_per_call=2)
    session._choose = lambda call, loop: PlanChoice(plan=plan, plan_reason="given")
    record = narrow_sums.fit(model, narrow_sums.batch_of("sgd"), session, steps=60)
    return record.communication.reduced_bytes_per_step, record.trained_with


def main(package, replicas, dtypes):
    keras = importlib.import_module(package)
    strategy = replica_cases.strategy_of(replicas)
    found = {}
    for dtype in dtypes:
        named = None if dtype == "float32" else dtype
        found[dtype] = {
            "steps": of_steps(strategy, named),
            "overflow": of_overflow(strategy, named),
            "bytes": bytes_of_step(keras, strategy, named),
            "replicas": strategy.num_replicas_in_sync,
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
