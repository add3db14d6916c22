"""The model and its training."""

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras as keras  # the package of Transform's layers
from tfx import v1 as tfx
from tfx_bsl.public import tfxio

from models import features

BATCH_SIZE = 64
HIDDEN_UNITS = 32
LEARNING_RATE = 1e-3


def run_fn(fn_args: tfx.components.FnArgs) -> None:
    """Trains and saves the model; OptimizedTrainer calls it as TFX's Trainer would."""
    transform = tft.TFTransformOutput(fn_args.transform_output)
    model = build(transform)
    model.fit(
        _batches(fn_args.train_files, fn_args, transform),
        steps_per_epoch=fn_args.train_steps,
        validation_data=_batches(fn_args.eval_files, fn_args, transform),
        validation_steps=fn_args.eval_steps,
        callbacks=[keras.callbacks.TensorBoard(fn_args.model_run_dir)],
        verbose=2,
    )
    # Attached to the model, so that it is saved with it.
    model.transform = transform.transform_features_layer()
    model.save(
        fn_args.serving_model_dir,
        save_format="tf",
        signatures={"serving_default": _serving(model, transform)},
    )


def build(transform: tft.TFTransformOutput) -> keras.Model:
    """Returns the compiled model; its input is a dictionary of tensors [batch, 1]."""
    inputs, parts = {}, []
    for name in features.NUMERIC:
        inputs[name] = keras.Input((1,), name=name, dtype=tf.float32)
        parts.append(inputs[name])
    for name in features.CATEGORICAL:
        size = transform.vocabulary_size_by_name(name) + 1  # one for all unknown values
        inputs[name] = keras.Input((1,), name=name, dtype=tf.int64)
        parts.append(keras.layers.CategoryEncoding(size, output_mode="one_hot")(inputs[name]))
    hidden = keras.layers.concatenate(parts)
    for _ in range(2):
        hidden = keras.layers.Dense(HIDDEN_UNITS, activation="relu")(hidden)
    output = keras.layers.Dense(1, activation="sigmoid")(hidden)
    model = keras.Model(inputs, output)
    model.compile(
        optimizer=keras.optimizers.Adam(LEARNING_RATE),
        loss=keras.losses.BinaryCrossentropy(),
        metrics=[keras.metrics.BinaryAccuracy()],
    )
    return model


def _batches(
    patterns: list[str], fn_args: tfx.components.FnArgs, transform: tft.TFTransformOutput
) -> tf.data.Dataset:
    """Returns endless batches of (features, label); InputTuner's plan applies here."""
    options = tfxio.TensorFlowDatasetOptions(batch_size=BATCH_SIZE, label_key=features.LABEL)
    schema = transform.transformed_metadata.schema
    return fn_args.data_accessor.tf_dataset_factory(patterns, options, schema).repeat()


def _serving(
    model: keras.Model, transform: tft.TFTransformOutput
) -> tf.types.experimental.PolymorphicFunction:
    """Returns the signature: serialized tf.Example of raw columns in, probabilities out."""
    spec = transform.raw_feature_spec()
    spec.pop(features.LABEL)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        columns = tf.io.parse_example(serialized, spec)
        return {"probability": model(model.transform(columns))}

    return serve
