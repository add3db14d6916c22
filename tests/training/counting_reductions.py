"""How often a worker reduces in a step, and after the steps of a call; run as a script.

Argument: the Keras package. Prints that for batches that are all full, and for any, as JSON:
`{"full": {"step": 1, "call": 4}, "any": ...}`.
"""

import importlib
import json
import sys

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.trials.choice import PlanChoice


def reductions(keras, strategy, *, drop_remainder):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
    x = np.zeros((16, 4), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
    data = data.batch(4, drop_remainder=drop_remainder).repeat()
    session, loops = TrainingSession(PerfConfig()), []

    def choose(call, loop):
        loops.append(loop)
        return PlanChoice(plan=plan, plan_reason="given")

    plan, session._choose = TrainingPlan(steps_per_call=3), choose
    with interception.intercepting_fit(session.fit):
        model.fit(data, steps_per_epoch=3, verbose=0)
    function = loops[0].functions.traced(plan)._function._compiled
    (traced,) = function._list_all_concrete_functions()
    graph = traced.graph.as_graph_def()
    steps = [node.op for each in graph.library.function for node in each.node_def]
    call = [node.op for node in graph.node]
    return {"step": steps.count("CollectiveReduceV2"), "call": call.count("CollectiveReduceV2")}


def main(package):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras = importlib.import_module(package)
    found = {
        name: reductions(keras, strategy, drop_remainder=name == "full")
        for name in ("full", "any")
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
