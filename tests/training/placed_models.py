"""Trains models whose layers are on several logical CPUs; run as a script.

Each model is trained on one device, too. What is saved is for a process with one device.
"""

import importlib
import os
import pathlib
import signal
import sys

import numpy as np
import tensorflow as tf
from model_cases import assert_same_history, captured
from tensorflow.python.eager import context

from tfx_perf.config import PerfConfig
from tfx_perf.distribute.model_parallel import layer_chain
from tfx_perf.tf_internals import autograph
from tfx_perf.training.keras_api import either_keras, slots, variables
from tfx_perf.training.recovery import checkpoint_writer
from tfx_perf.training.session import TrainingSession, built_under

BATCH_SIZE, STEPS = 8, 20
COMPUTING = {
    "MatMul", "_FusedMatMul", "BatchMatMulV2", "Einsum", "ResourceGather", "GatherV2",
}  # fmt: skip
TABLES = ("table", "linear")
NAMED = (*TABLES, "attend_0", "attend_1", "up_0", "up_1", "down_0", "down_1", "head")


def transformer(keras):
    layers = keras.layers
    tokens = keras.Input((6,), dtype="int32")
    x = layers.Embedding(50, 16, name="table")(tokens)
    for index in range(2):
        # The gradient of a key's bias is zero but for rounding.
        attend = layers.MultiHeadAttention(2, 8, use_bias=False, name=f"attend_{index}")
        x = layers.LayerNormalization()(layers.Add()([x, attend(x, x)]))
        hidden = layers.Dense(32, activation="relu", name=f"up_{index}")(x)
        hidden = layers.Dropout(0.0)(layers.Dense(16, name=f"down_{index}")(hidden))
        x = layers.LayerNormalization()(layers.Add()([x, hidden]))
    outputs = layers.Dense(1, name="head")(layers.GlobalAveragePooling1D()(x))
    return keras.Model(tokens, outputs)


def wide(keras):
    """A model with a model in it, and a regularizer, which reads weights outside of layers."""
    layers = keras.layers
    tokens = keras.Input((6,), dtype="int32")
    deep = keras.Sequential(
        [
            keras.Input((96,)),
            layers.Dense(40, activation="relu", kernel_regularizer="l2", name="up_0"),
            layers.BatchNormalization(),
            layers.Dense(40, activation="tanh", name="up_1"),
        ]
    )
    table = layers.Embedding(200, 16, name="table")(tokens)
    linear = layers.Embedding(200, 1, name="linear")(tokens)
    joined = layers.Concatenate()([deep(layers.Flatten()(table)), layers.Flatten()(linear)])
    return keras.Model(tokens, layers.Dense(1, name="head")(joined))


def divided(keras):
    """A model of which most is one embedding, that another layer reads, too."""
    layers = keras.layers

    class Tied(layers.Layer):
        def __init__(self, table):
            super().__init__()
            self.table = table

        def call(self, x):
            return tf.matmul(x, self.table.embeddings, transpose_b=True)

    tokens = keras.Input((6,), dtype="int32")
    table = layers.Embedding(203, 16, mask_zero=True, name="table")
    hidden = layers.GlobalAveragePooling1D()(table(tokens))
    return keras.Model(tokens, layers.Dense(1, name="head")(Tied(table)(hidden)))


def subclassed(keras):
    class Mine(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = keras.layers.Embedding(50, 16)
            self.flat = keras.layers.Flatten()
            self.up = [keras.layers.Dense(units, activation="relu") for units in (8, 64, 8)]
            self.head = keras.layers.Dense(1)

        def call(self, tokens):
            x = self.flat(self.table(tokens))
            for layer in self.up:
                x = layer(x)
            return self.head(x)

    return Mine()


MODELS = {"transformer": transformer, "wide": wide, "divided": divided, "subclassed": subclassed}


def built(keras, name, optimizer):
    keras.utils.set_random_seed(3)
    model = MODELS[name](keras)
    model.compile(optimizer(keras), "mse", metrics=["mae"])
    return model


def adam(keras):
    # With a norm over all gradients, wherever they are.
    return keras.optimizers.Adam(0.01, global_clipnorm=1.0)


def sgd(keras):
    return keras.optimizers.SGD(0.01, momentum=0.9)


def data():
    random = np.random.default_rng(0)
    count = BATCH_SIZE * STEPS // 2
    tokens = random.integers(0, 50, (count, 6)).astype("int32")
    targets = random.normal(size=(count, 1)).astype("float32")
    batches = tf.data.Dataset.from_tensor_slices((tokens, targets))
    return batches.batch(BATCH_SIZE, drop_remainder=True)


def place(named):
    """Returns e.g. `CPU:1`, from a name of any length, a variable, or a node of a graph."""
    return getattr(named, "device", named).rpartition("device:")[2]


def places(model):
    """Returns where weights are, by layer, after it was checked that slots are there, too."""
    found = {}
    for layer in model._flatten_layers():
        weights = list(map(variables.innermost, layer.weights))
        found[layer.name] = {place(weight) for weight in weights}
    kept = slots.by_variable(model.optimizer, model.trainable_variables)
    for weight, own in zip(model.trainable_variables, kept, strict=True):
        assert own
        for slot in own:
            assert place(variables.innermost(slot)) == place(variables.innermost(weight))
    return found


def check_computed(graphs, at):
    """Checks where TensorFlow has run what is named after a layer, and the gradients of it."""
    seen = set()
    for node in (node for graph in graphs for node in graph.node):
        layer = next((name for name in at if f"/{name}" in node.name), None)
        if layer is not None and node.op in COMPUTING:
            assert place(node) == at[layer], node.name
            seen.add((layer, "gradient_tape" in node.name))
    assert {(layer, False) for layer in at} <= seen, seen
    assert {(layer, True) for layer in at if layer not in TABLES} <= seen  # of these, slices


def capacity_bytes(keras, name, optimizer, *, share):
    """Returns the share of what a model takes."""
    model = built(keras, name, optimizer)
    captured(model, data())
    chain = layer_chain.chain_of(model, either_keras.api_of(model), batch_size=BATCH_SIZE)
    return int(share * sum(layer.bytes for layer in chain.layers))


def state(model):
    """Returns weights and slots."""
    kept = slots.by_variable(model.optimizer, model.trainable_variables)
    return [np.array(variables.innermost(each)) for each in [*model.weights, *sum(kept, [])]]


def compare(keras, name, optimizer, *, share, used, folder):
    """Trains on one device and on several; returns the latter model."""
    alone = built(keras, name, optimizer)
    expected = captured(alone, data(), validation_data=data().take(2)).proceed()
    capacity = capacity_bytes(keras, name, optimizer, share=share)
    settings = PerfConfig.from_dict(
        {"distribution": {"strategy": "model_parallel", "device_memory_bytes": capacity}}
    )
    with built_under(settings.distribution):
        model = built(keras, name, optimizer)
    during = {}

    def on_epoch_end(epoch, logs=None):
        during.update(places(model))
        model.save_weights(f"{folder}/during.weights.h5")

    watch = keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)
    call = captured(model, data(), callbacks=[watch], validation_data=data().take(2))
    session = TrainingSession(settings)
    with context.collect_graphs(optimized=True) as graphs:
        history = session.fit(call)
    placement = session.record.placement
    at = {each: place(part.device) for part in placement.parts for each in part.layers}
    assert sum(bool(part.weight_bytes) for part in placement.parts) == used, placement
    for layer, device in at.items():
        holds_table = name == "divided" and layer != "head"
        assert holds_table or during.get(layer, set()) <= {device}
    if name == "divided":
        assert [part.table_rows for part in placement.parts] == [
            {"table": 68}, {"table": 68}, {"table": 67}
        ]  # fmt: skip
        assert during["table"] == {"CPU:0", "CPU:1", "CPU:2"}
        assert [each.shape for each in model.weights] == [each.shape for each in alone.weights]
    assert {place(variables.innermost(each)) for each in model.weights} == {"CPU:0"}
    assert all(part.placed_bytes <= capacity for part in placement.parts)
    assert (placement.crossing_bytes_per_step is None) == (name == "subclassed")
    if name in ("transformer", "wide"):  # whose layers tf_keras names by themselves
        check_computed(graphs, {each: at[each] for each in at if each in NAMED})
    for one, other in zip(state(model), state(alone), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    saved = built(keras, name, optimizer)
    saved(next(iter(data()))[0])
    saved.load_weights(f"{folder}/during.weights.h5")
    for one, other in zip(saved.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert_same_history(history, expected)
    np.testing.assert_allclose(
        model.evaluate(data(), verbose=0), alone.evaluate(data(), verbose=0), rtol=1e-5
    )
    record = session.record
    assert (record.plan.is_plain_fit, record.environment["strategy"]) == (True, "model_parallel")
    assert "several devices" in record.plan_reason
    return model


def go_on(keras, folder):
    """Trains a model whose table is cut, and is killed on the way if it was not before."""
    checkpoint_writer._SAVE_SHARE = 0  # this training is too short for a save to be a small share
    alone = built(keras, "divided", adam)
    captured(alone, data()).proceed()
    capacity = capacity_bytes(keras, "divided", adam, share=0.45)
    settings = PerfConfig.from_dict(
        {
            "distribution": {"strategy": "model_parallel", "device_memory_bytes": capacity},
            "training": {"checkpoint_folder": f"{folder}/checkpoints", "checkpoint_every_steps": 4},
        }
    )
    with built_under(settings.distribution):
        model = built(keras, "divided", adam)
    flag = pathlib.Path(folder, "killed")

    def on_epoch_end(epoch, logs=None):
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    watch = keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)
    session = TrainingSession(settings)
    session.fit(captured(model, data(), callbacks=[watch]))
    assert session.record.resumed_step >= 8
    assert all(part.table_rows for part in session.record.placement.parts)
    for one, other in zip(state(model), state(alone), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def main(package, name, folder):
    keras = importlib.import_module(package)
    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * 3
    tf.config.set_logical_device_configuration(cpu, configuration)
    with autograph.libraries_unconverted():
        if name == "killed":
            go_on(keras, folder)
            return
        compare(keras, name, adam, share=0.45, used=3, folder=folder)
        used = 3 if name == "divided" else 2
        model = compare(keras, name, sgd, share=0.65, used=used, folder=folder)
    tokens, _ = next(iter(data()))  # a subclassed model is saved for just this batch size
    np.save(pathlib.Path(folder, "tokens.npy"), tokens)
    np.save(pathlib.Path(folder, "predictions.npy"), model.predict(tokens, verbose=0))
    tf.saved_model.save(model, f"{folder}/saved")


main(*sys.argv[1:])
