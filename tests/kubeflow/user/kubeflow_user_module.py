"""A training module as a user has it, installed in the image."""

import tensorflow as tf
import tf_keras
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils
from tfx_bsl.public import tfxio


def _input_fn(files, accessor, schema):
    options = tfxio.TensorFlowDatasetOptions(batch_size=10, label_key="label")
    return accessor.tf_dataset_factory(files, options, schema).repeat()


def run_fn(fn_args):
    """Trains a tiny regression."""
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())
    train = _input_fn(fn_args.train_files, fn_args.data_accessor, schema)
    test = _input_fn(fn_args.eval_files, fn_args.data_accessor, schema)
    inputs = {"number": tf_keras.Input((1,), name="number")}
    outputs = tf_keras.layers.Dense(1)(tf_keras.layers.Dense(4, "relu")(inputs["number"]))
    model = tf_keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="mse")
    model.fit(
        train,
        steps_per_epoch=fn_args.train_steps,
        validation_data=test,
        validation_steps=fn_args.eval_steps,
        verbose=0,
    )
    tf.saved_model.save(model, fn_args.serving_model_dir)
