"""Puts the layers of a model on several devices while its `fit` runs."""

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, formatting, interception
from tfx_perf.core.interception import FitCall
from tfx_perf.distribute.model_parallel import divided_tables, layer_chain
from tfx_perf.distribute.model_parallel.layer_chain import LayerChain, PlacedLayer
from tfx_perf.hardware import devices
from tfx_perf.memory import batches
from tfx_perf.tf_internals import devices as tf_devices
from tfx_perf.tf_internals.built_optimizer import build_optimizer
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.keras_api.base_api import KerasApi, optimizers
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.measuring.accounts import DevicePart, Placement

_FUNCTIONS = ("train_function", "test_function", "predict_function")
# Gradients are named after the scope of the operation that they belong to.
_SCOPE = re.compile(r"on_device\.(\d+)\.")


@contextlib.contextmanager
def over_devices(call: FitCall, settings: DistributionSettings) -> Iterator[Placement | None]:
    """Places a model's layers on this machine's devices in the context; UserError if impossible.

    Before and afterwards all variables are where they were built. Only functions that Keras traces
    in the context run on the devices. Yields None, and does nothing, without the strategy
    `model_parallel` or if the user's code has a strategy with replicas.
    """
    model = call.model
    has_one_copy = isinstance(model.distribute_strategy, tf.distribute.OneDeviceStrategy)
    if settings.strategy != "model_parallel" or not has_one_copy:
        yield None
        return
    keras_api = either_keras.api_of(model)
    _check(model)
    _build(call)
    names = tf_devices.computing()
    capacities = [_capacity_bytes(name, settings, count=len(names)) for name in names]
    size = batches.declared_batch_size(call) or 1
    chain = layer_chain.chain_of(model, keras_api, batch_size=size)
    obstacles = {
        layer: divided_tables.obstacle(layer.layer, model, keras_api)
        for layer in chain.layers
        if layer.bytes > max(capacities)
    }
    tables = [layer for layer, obstacle in obstacles.items() if obstacle is None]
    shares = [_TableShare.of(tables, index, count=len(names)) for index in range(len(names))]
    left = [each - share.bytes for each, share in zip(capacities, shares, strict=True)]
    whole, chain = chain, chain.without_state_of(tables)
    sizes = [layer.bytes for layer in chain.layers]
    devices = layer_chain.assigned(sizes, chain.links, capacities=left)
    if devices is None:
        raise errors.UserError(_not_fitting(whole, capacities, obstacles=obstacles))
    variables: dict[str, list[tf.Variable]] = {name: [] for name in names}
    for layer, device in zip(chain.layers, devices, strict=True):
        variables[names[device]].extend(layer.variables)
    with (
        _retraced(model),
        moved(variables),
        divided_tables.divided([table.layer for table in tables], model, keras_api, devices=names),
        _calls_in_scopes(chain, devices, keras_api),
        placed(model.distribute_strategy, names),
    ):
        yield _placement(chain, devices, names=names, capacities=capacities, shares=shares)


@dataclasses.dataclass(frozen=True)
class _TableShare:
    """One device's rows of the cut embeddings, by layer; `bytes` include gradients and slots."""

    rows: dict[str, int]
    weight_bytes: int
    bytes: int

    @classmethod
    def of(cls, tables: Sequence[PlacedLayer], index: int, *, count: int) -> "_TableShare":
        rows: dict[str, int] = {}
        weight_bytes = taken = 0
        for table in tables:
            (whole,) = table.layer.weights
            row_count = rows[table.layer.name] = divided_tables.row_counts(whole, count)[index]
            share = row_count / whole.shape[0]
            weight_bytes += round(share * table.weight_bytes)
            taken += round(share * table.state_bytes)
        return cls(rows, weight_bytes, taken)


def _check(model: Any) -> None:
    for name, remedy in (
        ("run_eagerly", "Compile the model without it"),
        ("jit_compile", "Compile the model with jit_compile=False"),
    ):
        if getattr(model, name, False):
            raise errors.UserError(
                "Expected a model whose steps are traced and not compiled by XLA, for "
                f"distribution.strategy=model_parallel. Received: {name}=True. {remedy}."
            )
    for optimizer in optimizers(model):
        if not hasattr(optimizer, "build"):
            raise errors.UserError(
                "Expected an optimizer that makes its variables before the first step, for "
                f"distribution.strategy=model_parallel. Received: {type(optimizer).__module__}."
                f"{type(optimizer).__name__}. Take the one of tf_keras.optimizers."
            )


def _build(call: FitCall) -> None:
    model = call.model
    if not model.built:
        FitLoop(call).prepare()  # not used again: its traces know no devices
    build_optimizer(model)


def _capacity_bytes(name: str, settings: DistributionSettings, *, count: int) -> int:
    """Returns how many bytes a device may hold; CPUs share the host's memory."""
    kind = name.removeprefix("/device:")
    if settings.device_memory_bytes is not None:
        return settings.device_memory_bytes
    if kind.startswith("CPU"):
        return devices.memory_bytes() // count
    return tf_devices.allocator_limit_bytes(kind)


def _not_fitting(
    chain: LayerChain, capacities: Sequence[int], *, obstacles: Mapping[PlacedLayer, str | None]
) -> str:
    """Returns why a model does not fit; `obstacles` tell why large layers cannot be cut."""
    largest = max(chain.layers, key=lambda layer: layer.bytes)
    obstacle = obstacles.get(largest)
    parts = {
        kind: sum(getattr(layer, f"{kind}_bytes") for layer in chain.layers)
        for kind in ("weight", "gradient", "slot", "activation")
    }
    words = ", ".join(f"{kind}s {formatting.format_bytes(size)}" for kind, size in parts.items())
    held = ", ".join(map(formatting.format_bytes, capacities))
    return (
        f"Expected a model whose layers, in their order, fit the devices, which hold {held}. "
        f"Received: {formatting.format_bytes(sum(parts.values()))} ({words}); the largest layer, "
        f"{largest.layer.name}, takes {formatting.format_bytes(largest.bytes)}"
        f"{f' and cannot be cut: {obstacle}' if obstacle else ''}. Take more devices, "
        "a smaller batch, or an optimizer that keeps less of each weight, or raise "
        "distribution.device_memory_bytes if they have more."
    )


@contextlib.contextmanager
def _retraced(model: Any) -> Iterator[None]:
    """Has Keras trace its functions in the context, and once more afterwards."""

    def forget() -> None:
        for name in _FUNCTIONS:
            setattr(model, name, None)

    forget()
    try:
        yield
    finally:
        forget()


def _calls_in_scopes(
    chain: LayerChain, devices: Sequence[int], keras_api: KerasApi
) -> contextlib.AbstractContextManager[None]:
    # The first call of a layer decides, since it has the weights.
    device_of = {
        id(layer.layer): device
        for layer, device in reversed(list(zip(chain.layers, devices, strict=True)))
    }

    def calling(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            device = device_of.get(id(layer))
            if device is None:
                return original(layer, *args, **kwargs)
            with scope(device):
                return original(layer, *args, **kwargs)

        return call

    return interception.replacing(keras_api.called_class, "__call__", calling)


def _placement(
    chain: LayerChain,
    devices: Sequence[int],
    *,
    names: Sequence[str],
    capacities: Sequence[int],
    shares: Sequence[_TableShare],
) -> Placement:
    parts = []
    for index, share in enumerate(shares):
        layers = [
            layer for layer, device in zip(chain.layers, devices, strict=True) if device == index
        ]
        parts.append(
            DevicePart(
                device=names[index],
                layers=tuple(layer.layer.name for layer in layers),
                table_rows=share.rows,
                weight_bytes=share.weight_bytes + sum(layer.weight_bytes for layer in layers),
                placed_bytes=share.bytes + sum(layer.bytes for layer in layers),
                capacity_bytes=capacities[index],
            )
        )
    crossing = layer_chain.crossing_bytes(chain.links, devices)
    return Placement(
        parts=tuple(parts), crossing_bytes_per_step=crossing if chain.are_links_known else None
    )


def scope(device: int) -> contextlib.AbstractContextManager[Any]:
    """Returns the name scope of what is computed on a device, and of its gradients."""
    return tf.name_scope(f"on_device.{device}.")


@contextlib.contextmanager
def placed(strategy: tf.distribute.Strategy, devices: Sequence[str]) -> Iterator[None]:
    """Places all operations that a strategy with one replica traces in the context.

    An operation in a `scope`, or of its gradient, is on the scope's device. Any other one is with
    the variable that it reads or writes, otherwise on the device of its largest input.
    """

    def device_of(operation: tf.Operation) -> str:
        match = _SCOPE.search(operation.name)
        if operation.device or not match:
            return operation.device or _source(operation.inputs)
        return devices[int(match[1])]

    def running(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(fn: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            @tf.autograph.experimental.do_not_convert
            def on_devices(*args: Any, **kwargs: Any) -> Any:
                # Otherwise operations without a device would get the strategy's own.
                with tf.device(None), tf.compat.v1.device(device_of):
                    return fn(*args, **kwargs)

            return original(on_devices, *arguments, **options)

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
    if tensor.device:
        return tensor.device
    if tensor.op.type == "ReadVariableOp":  # which TensorFlow itself puts beside its variable
        return _device_of_resource(tensor.op.inputs[0])
    return _device_of_resource(tensor) if tensor.dtype == tf.resource else ""


def _device_of_resource(tensor: Any) -> str:
    while not tensor.device:
        captures = getattr(tensor.graph, "captures", ())
        outer = next((each for each, inside in captures if inside is tensor), None)
        if outer is None:
            return ""
        tensor = outer
    return tensor.device


def _size(tensor: tf.Tensor) -> int:
    """Returns the number of elements; unknown dimensions count as 1."""
    return math.prod(length or 1 for length in tensor.shape) if tensor.shape.rank else 1


@contextlib.contextmanager
def moved(variables: Mapping[str, list[tf.Variable]]) -> Iterator[None]:
    """Moves variables (by device) while the context lasts; they come back with their new values.

    The objects stay, so that layers, optimizers and checkpoints find them. Functions traced before
    read stale values, and those traced meanwhile must not be used later.
    """
    left = []  # variables, handles and copies, which nothing else keeps alive
    try:
        for device, moving in variables.items():
            for variable in moving:
                with tf.init_scope(), tf.device(device):
                    copy = tf.Variable(variable.read_value())
                left.append((variable, variable._handle, copy))
                variable._handle = copy._handle
        yield
    finally:
        for variable, handle, copy in left:
            variable._handle = handle
            with tf.device(handle.device):
                variable.assign(copy.read_value())
