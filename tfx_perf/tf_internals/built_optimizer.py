"""Has optimizers of either Keras package create their variables before the first step."""

from typing import Any

from tfx_perf.core import structural_hash


def build_before_trace(model: Any) -> None:
    """Builds the used optimizer if it is one of Keras 3, and all layers are built.

    Those of Keras 3 create their variables in the step, which is then traced twice, with each
    created in a condition.
    """
    is_of_keras_3 = hasattr(getattr(model, "optimizer", None), "built")
    if is_of_keras_3 and all(layer.built for layer in model._flatten_layers()):
        build_used_optimizer(model)


def build_used_optimizer(model: Any) -> None:
    """Builds the optimizer, unless a user's own step may use others: its slots are large."""
    step = getattr(model.train_step, "__func__", model.train_step)
    scales = hasattr(model.optimizer, "inner_optimizer")  # by a constant, unless it is built
    if scales or structural_hash.is_of_framework(step):
        build_optimizer(model)


def build_optimizer(model: Any) -> None:
    """Has the optimizer of a compiled, built model create its variables, as Keras 3's `fit` does.

    A step that is traced earlier may take the first loss scale for a constant. Variables are not
    created again: another model's strategy forbids it, and Keras 3's `LossScaleOptimizer` would
    start over. Legacy optimizers create them in the first step.
    """
    optimizer = model.optimizer
    if model.built and hasattr(optimizer, "build") and not _is_built(optimizer):
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)


def _is_built(optimizer: Any) -> bool:
    if hasattr(optimizer, "built"):
        return optimizer.built
    # In tf_keras, an optimizer that scales the loss for another has nothing of its own to build.
    return getattr(getattr(optimizer, "inner_optimizer", optimizer), "_built", False)
