"""Optimizers of either Keras package that make their variables before the first step."""

from typing import Any


def build_optimizer(model: Any) -> None:
    """Has the optimizer of a model that is built make its variables, as `fit` of Keras 3 has it.

    A step that is traced before may hold its first loss scale for a constant, and tracing must not
    make variables. One that has them is left alone: in the scope of another model's strategy this
    one's cannot be entered, and Keras 3's `LossScaleOptimizer` would begin anew. Legacy optimizers
    make their variables in the first step.

    Args:
        model: compiled.
    """
    optimizer = model.optimizer
    if model.built and hasattr(optimizer, "build") and not _is_built(optimizer):
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)


def _is_built(optimizer: Any) -> bool:
    if hasattr(optimizer, "built"):
        return optimizer.built
    # Of tf_keras, where one that scales the loss for another has nothing of its own to build.
    return getattr(getattr(optimizer, "inner_optimizer", optimizer), "_built", False)
