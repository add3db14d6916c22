"""The optimizers of the cases; some are users' own."""

from typing import Any

import tensorflow as tf

from .cases import Case

OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "OwnGradients", "OwnApply", "LossScale")
# Arguments that go together with any of them.
OPTIONS = (
    (),
    (("use_ema", True), ("ema_momentum", 0.8)),
    (("use_ema", True), ("ema_overwrite_frequency", 3)),
    (("clipnorm", 0.05),),
    (("global_clipnorm", 0.05),),
    (("clipvalue", 0.02),),
    (("weight_decay", 0.01),),
    (("schedule", True),),
)


def make_optimizer(keras: Any, case: Case) -> Any:
    options = dict(case.optimizer_options)
    rate = 0.002 if case.edit == "now: rate" else 0.02
    if options.pop("schedule", False):
        rate = keras.optimizers.schedules.ExponentialDecay(rate, 5, 0.8)
    name = case.optimizer
    if name == "LossScale":
        inner = keras.optimizers.Adam(rate, **options)
        kind = keras.mixed_precision if keras.__name__ == "tf_keras" else keras.optimizers
        return kind.LossScaleOptimizer(inner)
    if name == "SGD":
        return keras.optimizers.SGD(rate, momentum=0.9, **options)
    if name.startswith("Own"):
        return _own(keras, name)(rate, **options)
    return getattr(keras.optimizers, name)(rate, **options)


def _own(keras: Any, name: str) -> type:
    is_keras3 = keras.__name__ == "keras"

    def half(gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values * 0.5, gradient.indices, gradient.dense_shape)
        return gradient * 0.5

    class OwnGradients(keras.optimizers.Adam):
        """Halves the gradients where the line computes them, or applies them."""

        if is_keras3:  # which computes none; `apply` gets them

            def apply(self, grads, trainable_variables=None):
                return super().apply([half(g) for g in grads], trainable_variables)

        else:

            def compute_gradients(self, loss, var_list, tape=None):
                pairs = super().compute_gradients(loss, var_list, tape)
                return [(half(gradient), variable) for gradient, variable in pairs]

    class OwnApply(keras.optimizers.Adam):
        if is_keras3:

            def apply_gradients(self, grads_and_vars):
                return super().apply_gradients([(half(g), v) for g, v in grads_and_vars])

        else:

            def minimize(self, loss, var_list, tape=None):
                pairs = self.compute_gradients(loss, var_list, tape)
                self.apply_gradients([(half(g), v) for g, v in pairs])

    return {"OwnGradients": OwnGradients, "OwnApply": OwnApply}[name]
