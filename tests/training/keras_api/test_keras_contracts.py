"""What both Keras packages call private is there and does what `keras_api` relies on.

So in `tf_keras_api`, and in `keras_function`, which traces Keras' own functions.
"""

import collections
import contextlib
import functools
import importlib
import inspect

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.contracts import contract
from tfx_perf.core import interception
from tfx_perf.training.keras_api import (
    either_keras,
    functional_graph,
    keras3_api,
    private_attributes,
    random_layers,
    slots,
    variables,
)
from tfx_perf.training.keras_api.base_api import all_layers, learning_rate

X, Y = tf.ones((4, 4)), tf.ones((4, 1))


def api_of(keras):
    return either_keras.api_of(keras.Sequential())


def built(keras, **compiled):
    """Returns a functional model, whose layers are `first` and `second`."""
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(3, name="first")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1, name="second")(hidden))
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    return model


@contextlib.contextmanager
def noted(owner, name, note=lambda *args, **named: None):
    """Yields a list of what `note` says of each call of a function."""
    seen = []

    def noting(own):
        def call(*args, **named):
            seen.append(note(*args, **named))
            return own(*args, **named)

        return call

    with interception.replacing(owner, name, noting):
        yield seen


@contract("A training is resumed although the model was compiled in another way.")
def test_a_model_tells_how_it_was_compiled(keras):
    model = built(keras, loss_weights=[0.5])
    found = either_keras.api_of(model).compiled_with(model)
    assert (found["loss"], found["loss_weights"]) == ("mse", [0.5])


@contract("Random layers, recurrent layers and precision are not found in nested models.")
def test_the_layers_of_a_nested_model_are_found(keras):
    inner = keras.Sequential([keras.layers.Dense(2, name="inside")])
    model = keras.Sequential([keras.Input((4,)), inner])
    names = [layer.name for layer in all_layers(model)]
    assert {model.name, inner.name, "inside"} <= set(names)


@contract("tf_keras copies the logs to NumPy at every batch, which takes longer than small steps.")
def test_a_callback_of_ours_gets_the_logs_of_tf_keras_as_they_are():
    seen, logs = [], {"loss": tf.constant(1.0)}
    callback = api_of(tf_keras).callback(on_train_batch_end=lambda batch, logs: seen.append(logs))
    tf_keras.callbacks.CallbackList([callback]).on_train_batch_end(0, logs)
    assert seen[0]["loss"] is logs["loss"]


@contract("Keras' own train function cannot be traced before it runs, and has no known variables.")
def test_the_graph_function_in_keras_own_train_function_is_found(keras):
    model = built(keras)
    model.optimizer.build(model.trainable_variables)
    train = either_keras.api_of(model).keras_functions(model).train
    train.trace(iter(tf.data.Dataset.from_tensors((X, Y)).repeat()))
    used = {id(variable) for variable in train.used_variables()}
    assert {id(variables.inner(each)) for each in model.trainable_variables} <= used


@contract("The evaluations inside of fit run other steps than fit counts.")
def test_the_evaluations_of_fit_can_be_counted_in_calls_of_other_lengths(keras):
    keras_api, counted = api_of(keras), []

    def begin(logs):
        keras_api.count_in_calls_of(keras_api.evaluation_counting(model), 2, model=model)

    model = built(keras)
    note = keras.callbacks.LambdaCallback(
        on_test_begin=begin, on_test_batch_end=lambda step, logs: counted.append(step)
    )
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(1)
    model.fit(X, Y, validation_data=data, verbose=0, callbacks=[note])
    assert counted == [1, 3]
    assert keras_api.get_steps_per_execution(model) == 1


@contract("A model that a callback compiles trains on with what was traced before.")
def test_fit_looks_its_train_function_up_for_each_call(keras):
    called = []

    class List(keras.callbacks.CallbackList):
        def on_train_batch_begin(self, batch, logs=None):
            super().on_train_batch_begin(batch, logs)
            model.train_function = lambda iterator: called.append(batch) or {"loss": 0.0}

    model = built(keras)
    model.fit(X, Y, batch_size=2, verbose=0, callbacks=List(model=model, add_history=True))
    assert called == [0, 1]


@contract("The losses of compile are not known: micro-batches may compute another mean.")
def test_the_losses_of_compile_are_found(keras):
    loss = keras.losses.MeanSquaredError()
    model = built(keras, loss=loss)
    assert either_keras.api_of(model).losses(model) == [loss]
    without = built(keras, loss=None)
    assert either_keras.api_of(without).losses(without) == []


@contract("A step that is taken apart computes another loss than Keras' own, or counts it wrongly.")
def test_the_parts_of_a_step_compute_loss_and_metric_of_keras(keras):
    model = built(keras, run_eagerly=True)
    keras_api = either_keras.api_of(model)
    expected = model.evaluate(X, Y, verbose=0)
    model.reset_metrics()
    y_pred = keras_api.forward(model, X)
    assert float(keras_api.loss(model, X, Y, y_pred, None)) == pytest.approx(expected)
    assert float(keras_api.metrics(model, X, Y, y_pred, None)["loss"]) == pytest.approx(expected)


_OPTIMIZER_CALLS = [
    "check_finite", "cond", "_clip_gradients", "_all_reduce_sum_gradients", "cond",
    "_overwrite_model_variables_with_average_value",
]  # fmt: skip


@contract("Keras 3 clips the gradients of each replica before it sums them, or fails, as it does.")
def test_keras_3_clips_sums_and_decides_where_it_is_told_otherwise():
    inner = keras3.optimizers.SGD(
        gradient_accumulation_steps=2, use_ema=True, ema_overwrite_frequency=1
    )
    optimizer = keras3.optimizers.LossScaleOptimizer(inner)
    model, seen = built(keras3, optimizer=optimizer, run_eagerly=True), []
    base = importlib.import_module("keras.src.optimizers.base_optimizer")
    owners = {"check_finite": optimizer, "cond": base.ops}
    with contextlib.ExitStack() as undo:
        for each in dict.fromkeys(_OPTIMIZER_CALLS):
            note = functools.partial(lambda name, *_: seen.append(name), each)
            undo.enter_context(noted(owners.get(each, inner), each, note))
        model.fit(X, Y, verbose=0)
        seen.clear()
        inner._iterations.assign(1)  # the next step is a window's last
        model.fit(X, Y, verbose=0)
    wanted = iter(_OPTIMIZER_CALLS)  # in this order, beside the conditions of others
    name = next(wanted)
    for each in seen:
        name = next(wanted, None) if each == name else name
    assert name is None, seen
    assert len(inner._accumulated_gradients) == len(model.trainable_variables)


@contract("Several workers cannot train with Keras 3.")
def test_keras_3_builds_and_reduces_logs_where_it_is_told_otherwise():
    seen = []

    def build(own):
        return lambda model, iterator=None, data_batch=None: seen.append(type(iterator).__name__)

    def reduce(own):
        return lambda values, strategy, reduction: (seen.append(reduction), values)[1]

    model = built(keras3, run_eagerly=True)
    trainer = importlib.import_module("keras.src.backend.tensorflow.trainer")
    with (
        interception.replacing(trainer.TensorFlowTrainer, "_maybe_symbolic_build", build),
        interception.replacing(trainer, "reduce_per_replica", reduce),
    ):
        model.fit(X, Y, verbose=0)
    assert seen == ["TFEpochIterator", "auto"]


@contract("What tf_keras' replicas wait for each other is not measured.")
@pytest.mark.parametrize("is_legacy", [False, True])
def test_tf_keras_sums_gradients_where_it_is_told_otherwise(is_legacy):
    model = built(tf_keras)
    optimizers = tf_keras.optimizers.legacy if is_legacy else tf_keras.optimizers
    model.compile(optimizers.SGD(0.1), "mse", run_eagerly=True)
    with contextlib.ExitStack() as undo:
        seen = [
            undo.enter_context(noted(owner, name, lambda *given: len(list(given[-1]))))
            for owner, name in either_keras.api_of(model).gradient_sums
        ]
        model.fit(X, Y, verbose=0)
    assert sum(seen, []) == [len(model.trainable_variables)]


@contract("Where BackupAndRestore has resumed a training, no plan can be tried.")
def test_an_interrupted_fit_leaves_the_epoch_where_the_next_one_begins(keras, tmp_path):
    def interrupt(epoch, logs):
        raise KeyboardInterrupt

    model = built(keras)
    for epochs in (2, 4):  # the second one is resumed
        stop = keras.callbacks.LambdaCallback(on_epoch_end=interrupt)
        backup = keras.callbacks.BackupAndRestore(str(tmp_path))
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y, verbose=0, epochs=epochs, callbacks=[backup, stop])
    with either_keras.api_of(model).from_first_epoch(model):
        assert model.fit(X, Y, verbose=0).epoch == [0]
    assert model.fit(X, Y, verbose=0).epoch == []


@contract("Targets without a loss do not raise what Keras raises.")
def test_tf_keras_checks_targets_and_loss():
    with pytest.raises(ValueError, match="Target data is missing"):
        built(tf_keras)._validate_target_and_loss(None, None)


@contract("Layers whose call takes no `training` cannot be called.")
def test_a_model_of_keras_3_tells_whether_its_call_takes_training():
    class Plain(keras3.Model):
        def call(self, inputs):
            return inputs

    assert not Plain()._call_has_training_arg
    assert built(keras3)._call_has_training_arg


@contract("In micro-batches, the losses of single outputs are weighted wrongly in the logs.")
def test_the_losses_of_single_outputs_are_counted_by_metrics():
    inputs = keras3.Input((4,))
    outputs = [keras3.layers.Dense(1, name=name)(inputs) for name in ("one", "other")]
    model = keras3.Model(inputs, outputs)
    model.compile(loss="mse", optimizer="sgd")
    y_pred = model(X)
    model._compute_loss(x=X, y=[Y, Y], y_pred=y_pred, sample_weight=None, training=True)
    losses = [each for each in model._compile_loss.metrics if each.name.endswith("_loss")]
    assert len(losses) == 2
    with noted(losses[0], "update_state") as seen:
        model._compute_loss(x=X, y=[Y, Y], y_pred=y_pred, sample_weight=None, training=True)
    assert len(seen) == 1


@contract("Random numbers depend on the replica, whatever sharding_invariant_random says.")
def test_keras_3_draws_by_functions_that_it_looks_up_each_time():
    module, layers = importlib.import_module("keras.src.backend.tensorflow.random"), keras3.layers
    for name, layer in {"dropout": layers.Dropout(0.5), "normal": layers.GaussianNoise(0.5),
                        "uniform": layers.AlphaDropout(0.5)}.items():  # fmt: skip
        with noted(module, name) as seen:
            layer(X, training=True)
        assert len(seen) == 1
    for name in ("normal", "uniform", "truncated_normal", "randint"):
        assert next(iter(inspect.signature(getattr(module, name)).parameters)) == "shape"
    assert [*inspect.signature(module.dropout).parameters][:3] == ["inputs", "rate", "noise_shape"]


@contract("Random numbers of tf_keras depend on the replica, whatever the setting says.")
def test_random_layers_of_tf_keras_draw_by_a_generator_that_may_have_seeds():
    kinds = importlib.import_module("tf_keras.src.backend").RandomGenerator
    layers, seen = tf_keras.layers, []

    def seed():
        seen.append(generator)
        return [1, len(seen)]

    for layer in (layers.Dropout(0.5), layers.GaussianNoise(0.5), layers.AlphaDropout(0.5)):
        generator = layer._random_generator
        assert generator._create_seed(7) == 7
        vars(generator).update(
            _rng_type=kinds.RNG_STATELESS, _built=True, make_seed_for_stateless_op=seed
        )
        layer(X, training=True)
        assert seen[-1] is generator
    for name in ("random_normal", "random_uniform", "truncated_normal"):
        assert [*inspect.signature(getattr(kinds, name)).parameters][:2] == ["self", "shape"]
    names = ["self", "inputs", "rate", "noise_shape"]
    assert [*inspect.signature(kinds.dropout).parameters] == names


@contract("What a user's optimizer does to gradients is passed over where a step is taken apart.")
def test_what_the_optimizers_of_tf_keras_compute_gradients_with_is_known():
    new, legacy = tf_keras.optimizers.SGD, tf_keras.optimizers.legacy.SGD
    assert hasattr(new, "minimize") and hasattr(new, "compute_gradients")
    assert "compute_gradients" in new.minimize.__code__.co_names
    assert "_compute_gradients" in legacy.minimize.__code__.co_names
    assert {"_get_gradients", "_transform_loss"} <= {*legacy._compute_gradients.__code__.co_names}


@contract("Logs of short epochs, and evaluations inside of fit, are of the wrong number of steps.")
def test_steps_per_execution_can_be_changed_and_restored(keras):
    model = built(keras, steps_per_execution=3)
    keras_api = either_keras.api_of(model)
    before = keras_api.execution_steps(model)
    keras_api.set_steps_per_execution(model, 5)
    assert keras_api.get_steps_per_execution(model) == 5
    assert int(before) == 3
    keras_api.set_execution_steps(model, before)
    assert keras_api.execution_steps(model) is before
    assert keras_api.get_steps_per_execution(model) == 3


@contract("A killed training resumes with other steps where its data end within an epoch.")
def test_keras_3_counts_the_steps_of_its_iterator_over_the_data():
    model, counting = built(keras3), []
    owner, name = either_keras.api_of(model).step_counting

    def keeping(own):
        return lambda *args, **kwargs: counting.append(own(*args, **kwargs)) or counting[-1]

    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(1)
    with interception.replacing(owner, name, keeping):
        model.fit(data, steps_per_epoch=3, verbose=0)
    assert [each._steps_seen for each in counting] == [3]


@contract("tf_keras does not know which step it is at: TensorBoard's graphs are wrong.")
def test_tf_keras_counts_its_steps_in_variables():
    model = built(tf_keras, run_eagerly=True)
    keras_api = either_keras.api_of(model)
    train, test = (keras_api.step_counter(model, name) for name in ("train_step", "test_step"))
    model.fit(X, Y, batch_size=2, verbose=0)
    model.evaluate(X, Y, batch_size=1, verbose=0)
    assert (int(train), int(test)) == (2, 4)


@contract("Workers beside parameter servers evaluate some examples twice, and some never.")
def test_tf_keras_reads_what_it_evaluates_by_a_handler_that_can_be_another():
    model, read = built(tf_keras), []

    def reading(own):
        def get(*args, **kwargs):
            read.append("pss_evaluation_shards" in kwargs)
            return own(*args, **{**kwargs, "distribute": False})

        return get

    module = importlib.import_module("tf_keras.src.engine.data_adapter")
    with interception.replacing(module, "get_data_handler", reading):
        model.fit(X, Y, verbose=0, validation_data=(X, Y))
        model.predict(X, verbose=0)
    assert read == [False, True, False]
    assert model._pss_evaluation_shards == 0
    assert {"sync", "steps"} <= vars(module.DataHandler).keys()


@contract("Optimizers whose update is one kernel read and write the wrong variables.")
def test_optimizers_keep_what_they_remember_of_a_variable_at_its_place(keras):
    trained = built(keras).trainable_variables
    adam, sgd = keras.optimizers.Adam(), keras.optimizers.SGD(0.5, momentum=0.9)
    for optimizer in (adam, sgd):
        gradients = [place * tf.ones(each.shape) for place, each in enumerate(trained)]
        optimizer.apply_gradients(zip(gradients, trained, strict=True))
    for place, variable in enumerate(trained):
        first, second = slots.adam_moments(adam, variable)
        np.testing.assert_allclose(first, 0.1 * place * np.ones(variable.shape), rtol=1e-5)
        np.testing.assert_allclose(second, 0.001 * place**2 * np.ones(variable.shape), rtol=1e-4)
        momentum = slots.momentum(sgd, variable)
        np.testing.assert_allclose(momentum, -0.5 * place * np.ones(variable.shape))


@contract("Of layers that are put on several devices, what optimizers keep stays on the host.")
def test_an_optimizer_has_a_list_of_each_kind_of_slots(keras):
    for optimizer, count in (
        (keras.optimizers.Adam(), 2),
        (keras.optimizers.SGD(momentum=0.5, use_ema=True), 2),
    ):
        model = built(keras, optimizer=optimizer)
        optimizer.build(model.trainable_variables)
        kept = slots.by_variable(optimizer, model.trainable_variables)
        for variable, own in zip(model.trainable_variables, kept, strict=True):
            assert [each.shape for each in own] == [variable.shape] * count


@contract("The parts of an embedding that no device can hold are not trained.")
def test_a_layer_has_its_weights_in_lists(keras):
    layer = built(keras).layers[1]
    for weight in layer.weights:
        (held,) = variables.lists_with(layer, weight).values()
        assert any(each is weight for each in held)
    assert not variables.lists_with(layer, tf.Variable(0.0))


@contract("Layers that are put on several devices are computed on the first one.")
def test_every_call_of_a_layer_goes_through_one_class(keras):
    model = built(keras)
    called_class = api_of(keras).called_class
    with noted(called_class, "__call__", lambda layer, *_, **__: layer.name) as called:
        model(X)
    assert {"first", "second"} <= set(called)


@contract("The masks of predictions are lost in functions that XLA compiles: other losses.")
def test_masks_stand_in_an_attribute_of_tensors(keras):
    masked = keras.layers.Masking()(tf.constant([[[1.0], [0.0]]]))
    (mask,) = private_attributes.masks_of(masked)
    assert mask.numpy().tolist() == [[True, False]]
    copy = tf.identity(masked)
    private_attributes.restore_masks(copy, [mask])
    assert private_attributes.masks_of(copy)[0] is mask


@contract("A resumed training of a tf_keras model with Dropout draws other masks.")
def test_a_random_layer_of_tf_keras_draws_from_a_generator_with_a_state():
    layer = tf_keras.layers.Dropout(0.5)
    model = tf_keras.Sequential([tf_keras.Input((4,)), layer])
    model.compile("sgd", "mse")
    generator = layer._random_generator
    assert generator._rng_type == "legacy_stateful"
    with random_layers.SaveableRandomLayers(model).installed():
        state = generator._generator.state
        before = state.numpy().tolist()
        layer(X, training=True)
        assert state.numpy().tolist() != before
    assert generator._rng_type == "legacy_stateful"


@contract("The state of Keras 3's global seed generator is not saved.")
def test_the_global_seed_generator_of_keras_3_is_found():
    keras3.random.uniform((1,))  # asks for one
    state = keras3_api.global_generator_state()
    before = state.numpy().tolist()
    keras3.random.uniform((1,))
    assert state.numpy().tolist() != before


@contract("Checkpoints lack variables, or have them under names that change from run to run.")
def test_variables_are_found_inside_of_what_holds_them(keras):
    weight = built(keras).trainable_variables[0]
    assert isinstance(variables.inner(weight), tf.Variable)
    generator = tf.random.Generator.from_seed(1)
    assert list(variables.named_variables({"own": generator}).values()) == [generator.state]
    made = [tf.Variable(0.0) for _ in range(3)]
    assert variables.in_order_of_creation(reversed(made)) == made


PATHS = {
    "keras": {
        "_layers/1/_kernel/_value", "_layers/1/bias/_value", "_layers/2/_kernel/_value",
        "_layers/2/bias/_value", "_loss_tracker/count/_value", "_loss_tracker/total/_value",
        "optimizer/_iterations/_value", "optimizer/_learning_rate/_value",
    },
    "tf_keras": {
        "_self_tracked_trackables/1/kernel", "_self_tracked_trackables/1/bias",
        "_self_tracked_trackables/2/kernel", "_self_tracked_trackables/2/bias",
        "_predict_counter", "_test_counter", "_train_counter",
        "compiled_loss/_total_loss_mean/count", "compiled_loss/_total_loss_mean/total",
        "optimizer/_iterations", "optimizer/_learning_rate",
        *(f"optimizer/_variables/{place}" for place in (1, 2, 3, 4)),
    },
}  # fmt: skip


@contract("Checkpoints that another version wrote are not read: variables have other paths.")
def test_the_variables_of_a_model_have_these_paths_after_a_fit(keras):
    model = built(keras, run_eagerly=True)
    model.fit(X, Y, validation_data=(X, Y), verbose=0)
    found = either_keras.api_of(model).named_state(model)
    assert found.keys() == {f"model/{path}" for path in PATHS[keras.__name__]}


@contract("What Keras' callbacks remember is lost when a training is resumed.")
def test_callbacks_keep_what_they_remember_under_known_names(keras, tmp_path):
    known = {**private_attributes.ALSO_REMEMBERED, **private_attributes.ONLY_REMEMBERED}
    made = {
        "ModelCheckpoint": lambda cls: cls(str(tmp_path / "a.keras")),
        "CSVLogger": lambda cls: cls(str(tmp_path / "a.csv")),
        "TensorBoard": lambda cls: cls(str(tmp_path)),
        "SwapEMAWeights": lambda cls: cls(),
    }
    for name, names in known.items():
        if name != "SwapEMAWeights" or keras is keras3:
            callback = made[name](getattr(keras.callbacks, name))
            callback.set_model(built(keras))
            callback.on_train_begin()
            counted = {"_global_test_batch"} if keras is tf_keras else set()  # in a variable
            assert set(names) - counted <= {*vars(callback)}, name
    base = keras.callbacks.Callback()
    base.set_model(built(keras))
    base.set_params({})
    known = private_attributes.OF_EVERY_CALLBACK | vars(keras.callbacks.Callback()).keys()
    assert {*vars(base)} <= known


@contract("A training is resumed although its learning rate's schedule is another one.")
def test_an_optimizer_tells_its_schedule(keras):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    assert learning_rate(keras.optimizers.SGD(schedule)) is schedule


@contract("Layers that only prepare inputs are not computed for many batches at once.")
def test_a_functional_model_runs_a_part_of_its_graph(keras):
    model = built(keras)
    keras_api = either_keras.api_of(model)
    assert functional_graph.runs_its_graph(model, keras_api)
    first, second = model.get_layer("first"), model.get_layer("second")
    by_layer, inputs_of, is_input = {}, {}, collections.Counter()
    for nodes in functional_graph.nodes_of(model).values():
        for node in nodes:
            parts = keras_api.node_parts(node)
            by_layer[parts.layer.name], inputs_of[parts.layer.name] = parts.outputs, parts.inputs
            is_input[node.is_input] += 1
    assert is_input == {True: 1, False: 2}
    assert [*map(id, inputs_of["second"])] == [*map(id, by_layer["first"])]
    nodes = {
        depth: [node for node in nodes if keras_api.node_parts(node).layer is second]
        for depth, nodes in functional_graph.nodes_of(model).items()
    }
    hidden = first(X)
    with functional_graph.part_of(model, keras_api, nodes=nodes, inputs=by_layer["first"]):
        found = model(hidden)
    np.testing.assert_allclose(found, second(hidden))
    np.testing.assert_allclose(model(X), second(hidden), rtol=1e-6)


@contract("A model that looks at its inputs in its loss is run in two parts, without them.")
def test_the_methods_that_are_given_the_inputs_are_known(keras):
    for name in ("compute_loss", "compute_metrics"):
        assert "x" in inspect.signature(getattr(keras.Model, name)).parameters

        class Own(keras.Model):
            pass

        setattr(Own, name, lambda self, *args, **named: None)
        inputs = keras.Input((4,))
        model = Own(inputs, keras.layers.Dense(1)(inputs))
        assert not functional_graph.runs_its_graph(model, either_keras.api_of(model))
