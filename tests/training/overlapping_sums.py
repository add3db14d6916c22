"""How many products each sum of gradients waits for, in a step of two replicas; run as a script.

Argument: the Keras package. Prints the smallest and the largest number as JSON.
"""

import importlib
import json
import sys

import numpy as np
import tensorflow as tf
from keras_api.replica_cases import strategy_of

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.trials.choice import PlanChoice

_ONE_PACK_EACH = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1)


def traced_graph(keras):
    """Returns the graph of a training's steps."""
    strategy = strategy_of(2)
    strategy.extended._communication_options = _ONE_PACK_EACH  # which workers' strategy is given
    with strategy.scope():
        layers = [keras.layers.Dense(4) for _ in range(3)]
        model = keras.Sequential([keras.layers.Input((4,)), *layers])
        model.compile("sgd", "mse")
    x = np.zeros((16, 4), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x)).batch(4, drop_remainder=True)
    session, loops = TrainingSession(PerfConfig()), []
    plan = TrainingPlan(steps_per_call=2)

    def choose(call, loop):
        loops.append(loop)
        return PlanChoice(plan=plan, plan_reason="given")

    session._choose = choose
    with interception.intercepting_fit(session.fit):
        model.fit(data, verbose=0)
    function = loops[0].functions.traced(plan)._function._compiled
    (traced,) = function._list_all_concrete_functions()
    return traced.graph.as_graph_def()


def ancestors(node, nodes):
    """Returns the names of all that a node of a function waits for."""
    found, queue = set(), [node]
    while queue:
        for given in queue.pop().input:
            name = given.removeprefix("^").partition(":")[0]
            if name in nodes and name not in found:
                found.add(name)
                queue.append(nodes[name])
    return found


def main(package):
    graph = traced_graph(importlib.import_module(package))
    for function in graph.library.function:
        nodes = {node.name: node for node in function.node_def}
        sums = [node for node in nodes.values() if node.op == "CollectiveReduceV2"]
        if sums:
            products = [
                sum(nodes[name].op == "MatMul" for name in ancestors(node, nodes))
                for node in sums
            ]
            print(json.dumps([min(products), max(products)]))
            return


if __name__ == "__main__":
    main(sys.argv[1])
