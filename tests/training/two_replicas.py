"""What two replicas of one process do, as JSON; run as a script with the Keras package.

`products`: how many products each sum of gradients waits for, the fewest and the most; `dropped`:
how many units both drop alike, of a thousand; `failed`: the error of a step in which one replica
fails while the other one waits for it in a sum, and the sum of the next step; `sliceable`: what
keeps one replica and two from slices, with normalization by the replica and by the batch; `flops`:
those of a step, and the note; `idle`: settings that do nothing; `trials`: how they ended, and the
first note of their training.
"""

import importlib
import json
import sys

import model_cases
import numpy as np
import tensorflow as tf
from keras_api.replica_cases import strategy_of

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.tf_internals import autograph
from tfx_perf.training import model_flops
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.replicas import strategies
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.step.slices import slicing_obstacle

UNITS = 1000
_ONE_PACK_EACH = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1)
_SECONDS = 2.0  # within which the other replica reaches a sum


def trained(model, data, *, steps_per_execution, **given):
    """Trains with a plan; returns the graph of its steps."""
    plan, loops = TrainingPlan(steps_per_execution=steps_per_execution), []
    session = model_cases.session_with(plan)
    choose = session._choose
    session._choose = lambda call, loop: (loops.append(loop), choose(call, loop))[1]
    with interception.intercepting_fit(session.fit):
        model.fit(data, verbose=0, **given)
    function = loops[0].functions.traced(plan)._function._compiled
    (traced,) = function._list_all_concrete_functions()
    return traced.graph.as_graph_def()


def ancestors(node, nodes):
    """Returns the names of all operations that a function's node waits for."""
    found, queue = set(), [node]
    while queue:
        for given in queue.pop().input:
            name = given.removeprefix("^").partition(":")[0]
            if name in nodes and name not in found:
                found.add(name)
                queue.append(nodes[name])
    return found


def products(keras, strategy):
    with strategy.scope():
        layers = [keras.layers.Dense(4) for _ in range(3)]
        model = keras.Sequential([keras.layers.Input((4,)), *layers])
        model.compile("sgd", "mse")
    x = np.zeros((16, 4), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x)).batch(4, drop_remainder=True)
    counts = []
    for function in trained(model, data, steps_per_execution=2).library.function:
        nodes = {node.name: node for node in function.node_def}
        for node in nodes.values():
            if node.op == "CollectiveReduceV2":
                counts.append(sum(nodes[name].op == "MatMul" for name in ancestors(node, nodes)))
    return [min(counts), max(counts)]


def dropped(keras, strategy):
    with strategy.scope():
        inputs = keras.Input((UNITS,))
        units = keras.layers.Dropout(0.5)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(units))
        model.compile(keras.optimizers.SGD(1.0), lambda y_true, y_pred: -y_pred)
    ones = np.ones((2, UNITS), "float32")
    data = tf.data.Dataset.from_tensors((ones, ones[:, :1]))  # one row for each replica
    trained(model, data, steps_per_execution=1)
    # Units that both replicas dropped or both kept; the others were dropped by one of them.
    kept_by = np.round(model.layers[-1].get_weights()[0])
    return int(np.sum(kept_by != 1))


def failed(keras, strategy):
    def fails(seconds):
        end = tf.timestamp() + seconds
        turns = tf.while_loop(lambda _: tf.timestamp() < end, lambda turn: turn + 1, [0])
        with tf.control_dependencies([turns]):
            return tf.debugging.Assert(seconds == 0, ["out of memory, say"])

    def of_replica(seconds):
        context = tf.distribute.get_replica_context()
        late = tf.get_static_value(context.replica_id_in_sync_group) == 1
        with tf.control_dependencies([fails(seconds)] if late else []):
            return context.all_reduce("SUM", tf.identity(1.0))

    step, kind = tf.function(lambda wait: strategy.run(of_replica, (wait,)), autograph=False), None
    try:
        step(tf.constant(_SECONDS, tf.float64))
    except tf.errors.InvalidArgumentError as error:
        kind = type(error).__name__
    found = step(tf.constant(0.0, tf.float64))
    return [kind, float(strategy.experimental_local_results(found)[0])]


def sliceable(keras, strategy):
    found = []
    for each in (tf.distribute.get_strategy(), strategy):
        for synchronized in (False, True):
            with each.scope():
                normalization = keras.layers.BatchNormalization(synchronized=synchronized)
                model = keras.Sequential([keras.layers.Input((4,)), normalization])
                model.compile("sgd", "mse")
            found.append(slicing_obstacle(model, either_keras.api_of(model)))
    return found


def flops(keras, strategy):
    with strategy.scope():
        layers = [keras.layers.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse", metrics=["mae"])
    with autograph.libraries_unconverted():
        found = model_flops.count_flops(model, (tf.ones((64, 16)), tf.ones((64, 1))))
    return [found.per_step, found.note]


def idle(keras, strategy):
    config = {"distribution": {"strategy": "mirrored", "reduction_dtype": "float16"}}
    return strategies.idle_settings(PerfConfig.from_dict(config), strategy)


def trials(keras, strategy):
    session = TrainingSession(model_cases.settings_that_try())
    with strategy.scope():
        model = model_cases.custom_train_step(keras)
    data = model_cases.regression().repeat()
    session.fit(model_cases.captured(model, data, steps_per_epoch=50, epochs=1))
    return [session.record.notes[0], *(trial.status for trial in session.record.trials)]


def main(package, *names):
    keras, strategy = importlib.import_module(package), strategy_of(2)
    strategy.extended._communication_options = _ONE_PACK_EACH  # as the strategy of workers gets
    print(json.dumps({name: globals()[name](keras, strategy) for name in names}))


if __name__ == "__main__":
    main(*sys.argv[1:])
