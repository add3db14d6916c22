"""Optimizers of either Keras package that make their variables before the first step."""

from typing import Any

from tfx_perf.core import structural_hash


def build_used_optimizer(model: Any) -> None:
    """Builds the optimizer, unless a step of the user's may have others: its slots are large."""
    step = getattr(model.train_step, "__func__", model.train_step)
    scales = hasattr(model.optimizer, "inner_optimizer")  # by a constant, if it is not built
    if scales or structural_hash.is_of_framework(step):
        build_optimizer(model)


def build_optimizer(model: Any) -> None:
    """Has the optimizer of a compiled, built model make its variables, as `fit` of Keras 3 does.

    A step that is traced before may take its first loss scale for a constant. Variables are not
    made again: another model's strategy forbids it, and Keras 3's `LossScaleOptimizer` would begin
    anew. Legacy optimizers make them in the first step.
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
