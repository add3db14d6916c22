"""Counts how often a worker reduces in a step, and after the steps of a call; run as a script.

Argument: the Keras package. Prints the counts for batches that are all full, and for any, as JSON:
`{"full": {"step": 1, "call": 4}, "any": ...}`, and beside them the FLOPs of a step.
"""

import importlib
import json
import sys

import numpy as np
import tensorflow as tf
from two_replicas import flops, trained


def reductions(keras, strategy, *, drop_remainder):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
    x = np.zeros((16, 4), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
    data = data.batch(4, drop_remainder=drop_remainder).repeat()
    graph = trained(model, data, steps_per_execution=3, steps_per_epoch=3)
    steps = [node.op for each in graph.library.function for node in each.node_def]
    call = [node.op for node in graph.node]
    return {"step": steps.count("CollectiveReduceV2"), "call": call.count("CollectiveReduceV2")}


if __name__ == "__main__":
    made = tf.distribute.MultiWorkerMirroredStrategy()
    package = importlib.import_module(sys.argv[1])
    found = {
        name: reductions(package, made, drop_remainder=name == "full") for name in ("full", "any")
    }
    print(json.dumps({**found, "flops": flops(package, made)}))
