"""A user's module whose step takes longer by a share that its configuration gives."""

import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.utils import io_utils
from tfx_bsl.public import tfxio

from benchmarks.training.user_modules import common

_SINES = 100  # of a step whose time is not changed
_OTHER_WORK = 10  # about the time of the rest of the step, in sines
_BATCHES = 20  # kept in memory, so that reading takes no share of the step


class Sines(tf.keras.layers.Layer):
    """Takes sines of sines: time that FLOPs, which count products, do not show."""

    def __init__(self, count: int) -> None:
        super().__init__(trainable=False)
        self._count = count

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the last sine, of the shape of `inputs`."""
        for _ in range(self._count):
            inputs = tf.sin(inputs)
        return inputs


def run_fn(fn_args: FnArgs) -> None:
    """Trains a model, `custom_config["slowdown"]` (a share) more slowly."""
    config = fn_args.custom_config
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())
    options = tfxio.TensorFlowDatasetOptions(
        batch_size=config["batch_size"], label_key=common.LABEL_KEY
    )
    data = fn_args.data_accessor.tf_dataset_factory(fn_args.train_files, options, schema)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((784,)),
            Sines(_SINES + round(config["slowdown"] * (_SINES + _OTHER_WORK))),
            layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(1e-3), loss)
    images = data.take(_BATCHES).map(common.flat_image).cache().repeat()
    model.fit(images, steps_per_epoch=fn_args.train_steps, verbose=0)
    tf.saved_model.save(model, fn_args.serving_model_dir)
