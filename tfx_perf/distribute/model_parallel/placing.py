"""Puts the layers of a model on several devices while its `fit` runs."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import errors, formatting, interception
from tfx_perf.core.interception import FitCall
from tfx_perf.distribute.model_parallel import (
    chain_cuts,
    divided_tables,
    following,
    layer_chain,
    moved_variables,
)
from tfx_perf.distribute.model_parallel.layer_chain import LayerChain, PlacedLayer
from tfx_perf.hardware import devices
from tfx_perf.memory import batches
from tfx_perf.tf_internals import devices as tf_devices
from tfx_perf.tf_internals.built_optimizer import build_optimizer
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.keras_api.base_api import KerasApi, optimizers
from tfx_perf.training.loop import Loop
from tfx_perf.training.measuring.placement import DevicePart, Placement

_FUNCTIONS = ("train_function", "test_function", "predict_function")


@contextlib.contextmanager
def over_devices(call: FitCall, settings: DistributionSettings) -> Iterator[Placement | None]:
    """Places a model's layers on this machine's devices in the context; UserError if impossible.

    Before and afterwards all is in the memory where it was built. Only what Keras traces in the
    context runs on the devices. Yields None, and does nothing, without the strategy
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
        id(layer): divided_tables.obstacle(layer.layer, model, keras_api)
        for layer in chain.layers
        if layer.bytes > max(capacities)
    }
    tables = [layer for layer in chain.layers if obstacles.get(id(layer), "whole") is None]
    shares = [_TableShare.of(tables, index, count=len(names)) for index in range(len(names))]
    left = [each - share.bytes for each, share in zip(capacities, shares, strict=True)]
    whole, chain = chain, chain.without_state_of(tables)
    sizes = [layer.bytes for layer in chain.layers]
    devices = chain_cuts.assigned(sizes, chain.links, capacities=left)
    if devices is None:
        raise errors.UserError(_not_fitting(whole, capacities, obstacles=obstacles))
    variables: dict[str, list[tf.Variable]] = {name: [] for name in names}
    for layer, device in zip(chain.layers, devices, strict=True):
        variables[names[device]].extend(layer.variables)
    with (
        _traced_anew(model),
        moved_variables.moved(variables),
        divided_tables.divided(
            [table.layer for table in tables], model, keras_api, devices=names
        ),
        _computed(chain, devices, keras_api),
        following.placed(model.distribute_strategy, names),
    ):
        yield _described(chain, devices, names=names, capacities=capacities, shares=shares)


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
            own = rows[table.layer.name] = divided_tables.row_counts(whole, count)[index]
            share = own / whole.shape[0]
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
        Loop(call).prepare()  # which nobody uses again: what it traces knows no devices
    build_optimizer(model)


def _capacity_bytes(name: str, settings: DistributionSettings, *, count: int) -> int:
    """Returns what a device may have; CPUs share the host's memory."""
    kind = name.removeprefix("/device:")
    if settings.device_memory_bytes is not None:
        return settings.device_memory_bytes
    if kind.startswith("CPU"):
        return devices.memory_bytes() // count
    return tf_devices.allocator_limit_bytes(kind)


def _not_fitting(
    chain: LayerChain, capacities: Sequence[int], *, obstacles: Mapping[int, str | None]
) -> str:
    """Returns why a model does not fit; `obstacles` tell why large layers cannot be cut, by id."""
    largest = max(chain.layers, key=lambda layer: layer.bytes)
    obstacle = obstacles.get(id(largest))
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
def _traced_anew(model: Any) -> Iterator[None]:
    """Has Keras trace its functions in the context, and once more afterwards."""

    def forget() -> None:
        for name in _FUNCTIONS:
            setattr(model, name, None)

    forget()
    try:
        yield
    finally:
        forget()


def _computed(
    chain: LayerChain, devices: Sequence[int], keras_api: KerasApi
) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which each layer is computed on its device."""
    # The first call of a layer decides, since that has its weights.
    device_of = {
        id(layer.layer): device
        for layer, device in reversed(list(zip(chain.layers, devices, strict=True)))
    }

    def calling(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            device = device_of.get(id(layer))
            if device is None:
                return own(layer, *args, **kwargs)
            with following.scope(device):
                return own(layer, *args, **kwargs)

        return call

    return interception.replacing(keras_api.called_class, "__call__", calling)


def _described(
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
    crossing = chain_cuts.crossing_bytes(chain.links, devices)
    return Placement(
        parts=tuple(parts), crossing_bytes_per_step=crossing if chain.are_links_known else None
    )
