"""The devices of traced operations, gradients too; TensorFlow would put these on the first."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.core import interception

# Gradients are named after the scope of what they are the gradient of.
_SCOPE = re.compile(r"on_device\.(\d+)\.")


def scope(device: int) -> contextlib.AbstractContextManager[Any]:
    """Returns the name scope of what is computed on a device, and of its gradients."""
    return tf.name_scope(f"on_device.{device}.")


@contextlib.contextmanager
def placed(strategy: tf.distribute.Strategy, devices: Sequence[str]) -> Iterator[None]:
    """Places all that a strategy with one replica traces while the context lasts.

    An operation in a `scope`, or of a gradient of one, is on the scope's device. Any other is with
    the variable that it reads or writes, else where its largest input comes from.
    """

    def device_of(operation: tf.Operation) -> str:
        found = _SCOPE.search(operation.name)
        if operation.device or not found:
            return operation.device or _source(operation.inputs)
        return devices[int(found[1])]

    def running(own: Callable[..., Any]) -> Callable[..., Any]:
        def run(fn: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            @tf.autograph.experimental.do_not_convert
            def on_devices(*args: Any, **kwargs: Any) -> Any:
                # The strategy's own device would count for all that is left without one.
                with tf.device(None), tf.compat.v1.device(device_of):
                    return fn(*args, **kwargs)

            return own(on_devices, *arguments, **options)

        return run

    with interception.replacing(strategy, "run", running):
        yield


def _source(inputs: Sequence[tf.Tensor]) -> str:
    """Returns the device that an operation's inputs come from; empty if none is known."""
    devices = {id(tensor): _device_of(tensor) for tensor in inputs}
    for tensor in inputs:
        if tensor.dtype == tf.resource and devices[id(tensor)]:
            return devices[id(tensor)]
    located = [tensor for tensor in inputs if devices[id(tensor)]]
    return devices[id(max(located, key=_size))] if located else ""


def _device_of(tensor: Any) -> str:
    """Returns the device of a tensor in a graph, or of the variable that it reads."""
    if tensor.device:
        return tensor.device
    if tensor.op.type == "ReadVariableOp":  # which TensorFlow itself puts beside its variable
        return _device_of_resource(tensor.op.inputs[0])
    return _device_of_resource(tensor) if tensor.dtype == tf.resource else ""


def _device_of_resource(tensor: Any) -> str:
    """Returns the device of a variable, from what stands for it in a graph."""
    while not tensor.device:
        captures = getattr(tensor.graph, "captures", ())
        outer = next((each for each, inside in captures if inside is tensor), None)
        if outer is None:
            return ""
        tensor = outer
    return tensor.device


def _size(tensor: tf.Tensor) -> int:
    """Returns the number of elements, as if there were one where it is not known."""
    return math.prod(length or 1 for length in tensor.shape) if tensor.shape.rank else 1
