"""Updates each variable with one TensorFlow kernel, where there is one.

Keras writes Adam as about twelve operations, each a pass over tensors of the variable's size:
for a large model the update waits for memory, and for a small one a quarter of the step's
operations are the optimizer's. TensorFlow's kernels `ResourceApplyAdam` and
`ResourceApplyKerasMomentum` compute the same formulas in one pass, on all cores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tfx_perf.core import interception
from tfx_perf.training.keras_api import slots
from tfx_perf.training.speedups.speedup import Fit, Speedup

if TYPE_CHECKING:
    from tfx_perf.training.keras_api.base_api import KerasApi

_DTYPES = ("float32", "float64")
# Largest relative error of 1 - beta in float32: about beta_1 <= 0.99 and beta_2 <= 0.999.
_MOST_ROUNDING = {"beta_1": 1e-6, "beta_2": 2e-5}
# Called with a variable, its gradient, and a `learning_rate` of the variable's type.
Kernel = Callable[..., None]


class FusedUpdate(Speedup):
    """One kernel updates each variable.

    It is always on, without trials: it computes the same and is not measurably slower.
    """

    name = "fused_update"
    is_never_slower = True
    expected_share = 0.05

    def words(self, value: bool) -> str:
        """Returns its name."""
        return ", fused update"

    def obstacle(self, fit: Fit) -> str | None:
        """Returns why the optimizer's own update must stay."""
        keras_api, model = fit.functions.keras_api, fit.functions.model
        reason = keras_api.splitting_obstacle(model)
        if not reason and not is_possible(model.optimizer, keras_api):
            return "no kernel computes what the optimizer does"
        return reason

    def always(self, fit: Fit) -> bool:
        """Returns whether it is possible."""
        return self.obstacle(fit) is None

    def step_arguments(self, value: bool) -> dict[str, Any]:
        """Returns the context for the optimizer's update."""
        return {"updating": fused}


def is_possible(optimizer: Any, keras_api: KerasApi) -> bool:
    """Whether a kernel computes the same as the optimizer's `update_step`."""
    return _kernel_of(_inner(optimizer), keras_api) is not None


@contextlib.contextmanager
def fused(optimizer: Any, keras_api: KerasApi) -> Iterator[None]:
    """Makes one kernel do each dense update traced in the context; see `is_possible`.

    Sparse gradients (`tf.IndexedSlices`) and variables of less than 32 bits use Keras' own update.
    """
    optimizer = _inner(optimizer)
    if isinstance(vars(optimizer).get("update_step"), _Update):
        yield  # done by another replica, which is traced at the same time
        return
    kernel_of = _kernel_of(optimizer, keras_api)
    assert kernel_of is not None  # `is_possible` holds
    kernel = kernel_of(optimizer)
    with interception.replacing(
        optimizer, "update_step", lambda step: _Update(optimizer, original=step, kernel=kernel)
    ):
        yield


@dataclasses.dataclass(frozen=True)
class _Update:
    """An optimizer's `update_step` that uses a kernel where it can."""

    optimizer: Any
    original: Callable[..., None]
    kernel: Kernel

    def __call__(self, gradient: Any, variable: Any, *learning_rate: Any) -> None:
        """Updates a variable; Keras 3 passes the learning rate, tf_keras does not."""
        import tensorflow as tf

        dtype = tf.as_dtype(variable.dtype)
        if isinstance(gradient, tf.IndexedSlices) or dtype.name not in _DTYPES:
            self.original(gradient, variable, *learning_rate)
            return
        rate = learning_rate[0] if learning_rate else self.optimizer.learning_rate
        self.kernel(
            variable,
            tf.cast(gradient, dtype),
            learning_rate=tf.cast(tf.convert_to_tensor(rate), dtype),
        )


def _inner(optimizer: Any) -> Any:
    """Returns the optimizer inside one that scales the loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _kernel_of(optimizer: Any, keras_api: KerasApi) -> Callable[[Any], Kernel] | None:
    optimizers = importlib.import_module(f"{keras_api.package}.optimizers")
    if "update_step" in vars(optimizer):
        return None
    update_step = getattr(type(optimizer), "update_step", None)
    if update_step in (optimizers.Adam.update_step, optimizers.AdamW.update_step):
        unusual = optimizer.amsgrad or getattr(optimizer, "adaptive_epsilon", False)
        numbers = _are_numbers(optimizer, "beta_1", "beta_2", "epsilon")
        if unusual or not numbers or any(
            abs(_rounding(getattr(optimizer, name)) - 1) > most
            for name, most in _MOST_ROUNDING.items()
        ):
            return None
        return _Adam
    if update_step is optimizers.SGD.update_step:
        is_possible = optimizer.momentum and _are_numbers(optimizer, "momentum")
        return _Momentum if is_possible else None
    return None


def _are_numbers(optimizer: Any, *names: str) -> bool:
    """Whether settings are numbers, not tensors whose values might change."""
    return all(isinstance(getattr(optimizer, name), (int, float)) for name in names)


def _rounding(beta: float) -> float:
    """Returns 1 - beta in float32 over 1 - beta; 1 if beta is 1."""
    return float(np.float32(1) - np.float32(beta)) / (1 - beta) if beta != 1 else 1.0


class _Adam:
    """Adam in the form just before section 2.1 of Kingma and Ba (2014), as Keras computes it.

    The kernel computes 1 - beta in the variable's own precision, Keras in double. In float32
    with beta_2 = 0.999 this makes early second moments 1.3e-5 smaller, all by the same factor;
    later ones, which no longer depend on the first steps, are right. The learning rate is
    corrected for this at every step.
    """

    def __init__(self, optimizer: Any) -> None:
        import tensorflow as tf

        self._optimizer = optimizer
        self._step = tf.convert_to_tensor(optimizer.iterations) + 1
        self._powers = {
            dtype: [
                # Keras computes the power of beta rounded to float32, in float64 too.
                tf.pow(tf.cast(tf.constant(beta, "float32"), dtype), tf.cast(self._step, dtype))
                for beta in (optimizer.beta_1, optimizer.beta_2)
            ]
            for dtype in _DTYPES
        }
        momentum, velocity = map(self._excess, (optimizer.beta_1, optimizer.beta_2))
        self._corrections = {
            "float32": tf.cast(tf.sqrt(velocity) / momentum, "float32"),
            "float64": tf.constant(1.0, "float64"),
        }

    def __call__(self, variable: Any, gradient: Any, *, learning_rate: Any) -> None:
        import tensorflow as tf

        optimizer, dtype = self._optimizer, gradient.dtype.name
        first, second = slots.adam_moments(optimizer, variable)
        beta_1_power, beta_2_power = self._powers[dtype]
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=beta_1_power,
            beta2_power=beta_2_power,
            lr=learning_rate * self._corrections[dtype],
            beta1=tf.constant(optimizer.beta_1, dtype),
            beta2=tf.constant(optimizer.beta_2, dtype),
            epsilon=tf.constant(optimizer.epsilon, dtype),
            grad=gradient,
        )

    def _excess(self, beta: float) -> Any:
        """Returns a mean of equal terms with beta rounded to float32, over that with beta."""
        import tensorflow as tf

        step = tf.cast(self._step, "float64")
        rounded, exact = (
            1 - tf.pow(tf.constant(value, "float64"), step)
            for value in (float(np.float32(beta)), beta)
        )
        return rounded / exact if beta != 1 else tf.constant(1.0, "float64")


class _Momentum:
    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def __call__(self, variable: Any, gradient: Any, *, learning_rate: Any) -> None:
        import tensorflow as tf

        optimizer = self._optimizer
        momentum = tf.constant(optimizer.momentum, "float32")  # as in Keras, for float64 too
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=slots.momentum(optimizer, variable).handle,
            lr=learning_rate,
            grad=gradient,
            momentum=tf.cast(momentum, gradient.dtype),
            use_nesterov=optimizer.nesterov,
        )
