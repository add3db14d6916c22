"""An optimizer's update of a variable as one kernel of TensorFlow's, where there is one.

Keras writes Adam as about twelve operations, each a pass over tensors of the variable's size:
for a large model the update waits for memory, and for a small one a quarter of the step's
operations are the optimizer's. TensorFlow's kernels `ResourceApplyAdam` and
`ResourceApplyKerasMomentum` compute the same formulas in one pass, on all cores.
"""

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import tensorflow as tf

from tfx_perf.training.lines.base_line import KerasLine

_DTYPES = (tf.float32, tf.float64)


def is_possible(optimizer: Any, line: KerasLine) -> bool:
    """Returns whether a kernel computes what the optimizer's `update_step` does."""
    return _kernel_of(_inner(optimizer), line) is not None


@contextlib.contextmanager
def fused(optimizer: Any, line: KerasLine) -> Iterator[None]:
    """Has dense updates that are traced inside be one kernel each.

    Sparse gradients (`tf.IndexedSlices`) and variables of less than 32 bits take Keras' own way.

    Args:
        optimizer: one of which `is_possible` holds.
        line: the optimizer's.
    """
    optimizer = _inner(optimizer)
    own, kernel = optimizer.update_step, _kernel_of(optimizer, line)

    def update(gradient: Any, variable: Any, *learning_rate: Any) -> None:
        if isinstance(gradient, tf.IndexedSlices) or variable.dtype not in _DTYPES:
            own(gradient, variable, *learning_rate)
            return
        dtype = variable.dtype
        rate = learning_rate[0] if learning_rate else optimizer.learning_rate  # Keras 3; tf_keras
        kernel(
            optimizer,
            variable,
            tf.cast(gradient, dtype),
            learning_rate=tf.cast(tf.convert_to_tensor(rate), dtype),
        )

    with mock.patch.object(optimizer, "update_step", update):
        yield


def _inner(optimizer: Any) -> Any:
    """Returns the optimizer inside one that scales the loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _kernel_of(optimizer: Any, line: KerasLine) -> Callable[..., None] | None:
    optimizers = importlib.import_module(f"{line.package}.optimizers")
    update_step = getattr(type(optimizer), "update_step", None)
    if update_step in (optimizers.Adam.update_step, optimizers.AdamW.update_step):
        unusual = optimizer.amsgrad or getattr(optimizer, "adaptive_epsilon", False)
        return None if unusual else _adam
    if update_step is optimizers.SGD.update_step:
        return _momentum if optimizer.momentum else None
    return None


def _adam(optimizer: Any, variable: Any, gradient: tf.Tensor, *, learning_rate: tf.Tensor) -> None:
    """Adam in the form just before section 2.1 of Kingma and Ba (2014), as Keras computes it.

    The kernel takes 1 - beta_2 in the variable's own precision, Keras in double. In float32 and
    with beta_2 = 0.999 that makes the second moments 1.3e-5 smaller, all by the same factor, and
    the steps would be longer by its root; so the learning rate is shortened by it.
    """
    dtype = gradient.dtype
    step = tf.cast(tf.convert_to_tensor(optimizer.iterations) + 1, dtype)
    beta_1, beta_2 = (tf.cast(beta, dtype) for beta in (optimizer.beta_1, optimizer.beta_2))
    index = _index(optimizer, variable)
    one = dtype.as_numpy_dtype(1)
    rounding = float(one - dtype.as_numpy_dtype(optimizer.beta_2)) / (1 - optimizer.beta_2)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=optimizer._momentums[index].handle,
        v=optimizer._velocities[index].handle,
        beta1_power=tf.pow(beta_1, step),
        beta2_power=tf.pow(beta_2, step),
        lr=learning_rate * tf.cast(math.sqrt(rounding), dtype),
        beta1=beta_1,
        beta2=beta_2,
        epsilon=tf.cast(optimizer.epsilon, dtype),
        grad=gradient,
    )


def _momentum(
    optimizer: Any, variable: Any, gradient: tf.Tensor, *, learning_rate: tf.Tensor
) -> None:
    tf.raw_ops.ResourceApplyKerasMomentum(
        var=variable.handle,
        accum=optimizer.momentums[_index(optimizer, variable)].handle,
        lr=learning_rate,
        grad=gradient,
        momentum=tf.cast(optimizer.momentum, gradient.dtype),
        use_nesterov=optimizer.nesterov,
    )


def _index(optimizer: Any, variable: Any) -> int:
    """Returns the variable's place in the optimizer's lists of slots."""
    if hasattr(optimizer, "_index_dict"):  # tf_keras
        return optimizer._index_dict[optimizer._var_key(variable)]
    return optimizer._get_variable_index(variable)
