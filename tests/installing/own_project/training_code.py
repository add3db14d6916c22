"""A run_fn as anybody might have it, on Keras 3."""

import time

import keras
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils
from tfx_bsl.public import tfxio


def _check(label):
    # each batch
    return label


def _data(files, fn_args, schema):
    options = tfxio.TensorFlowDatasetOptions(batch_size=64, label_key="label")
    data = fn_args.data_accessor.tf_dataset_factory(files, options, schema).repeat()
    return data.map(
        lambda columns, label: (
            tf.concat([columns["x"], columns["y"]], axis=1),
            tf.ensure_shape(tf.numpy_function(_check, [label], label.dtype), label.shape),
        )
    )


def run_fn(fn_args):
    """Trains two layers."""
    began = time.time()
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())
    model = keras.Sequential([
        keras.Input((2,)),
        keras.layers.Dense(16, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(
        _data(fn_args.train_files, fn_args, schema),
        steps_per_epoch=fn_args.train_steps // 4,
        epochs=4,
        validation_data=_data(fn_args.eval_files, fn_args, schema),
        validation_steps=fn_args.eval_steps,
    )
    print(f"trained in {time.time() - began:.0f} s")
    model.export(fn_args.serving_model_dir)
