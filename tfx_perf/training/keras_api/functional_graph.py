"""The graph of layers that a functional model runs; runs parts of it."""

import contextlib
from collections.abc import Iterator
from typing import Any

from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.keras_api.private_attributes import overrides

# Methods of a model, if it has them, that receive the inputs.
_SEE_INPUTS = ("_compute_loss", "compute_loss", "compute_metrics")

Nodes = dict[int, list[Any]]  # by depth; the inputs' is the largest


def runs_its_graph(model: Any, keras_api: KerasApi) -> bool:
    """Whether a model is functional, and only its layers see the inputs."""
    functional = next((cls for cls in type(model).__mro__ if cls.__name__ == "Functional"), None)
    return functional is not None and not (
        any(overrides(model, name, functional) for name in ("call", "__call__"))
        or any(overrides(model, name, keras_api.model_class) for name in _SEE_INPUTS)
    )


def graph_of(layer: Any) -> Any | None:
    """Returns the functional model that a layer or operation is, or has inside; None if neither."""
    model = getattr(layer, "_functional", None) or layer
    return model if getattr(model, "_nodes_by_depth", None) else None


def nodes_of(model: Any) -> Nodes:
    """Returns the nodes of a model's graph."""
    return model._nodes_by_depth


@contextlib.contextmanager
def part_of(
    model: Any,
    keras_api: KerasApi,
    *,
    nodes: Nodes,
    inputs: list[Any] | None = None,
    outputs: list[Any] | None = None,
) -> Iterator[None]:
    """Makes calls of the model inside run only `nodes`, from and to tensors of its graph."""
    flat_inputs, nested_inputs, flat_outputs, nested_outputs = keras_api.graph_attributes
    attributes: dict[str, Any] = {"_nodes_by_depth": nodes}
    if inputs is not None:
        attributes.update({flat_inputs: inputs, nested_inputs: inputs})
    if outputs is not None:
        attributes.update({flat_outputs: outputs, nested_outputs: outputs})
    held = vars(model)  # bypasses `__setattr__`, in which Keras would track them
    before = {name: held[name] for name in attributes}
    held.update(attributes)
    try:
        yield
    finally:
        held.update(before)
