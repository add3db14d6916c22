"""Placement: what is on which device, as the record tells it."""

from tfx_perf import records


class DevicePart(records.Record):
    """What one device has of a model.

    Attributes:
        device: its name, e.g. `/device:GPU:0`.
        layers: names, in the order in which they run.
        weight_bytes: of their weights.
        placed_bytes: of weights, gradients, what the optimizer keeps, and outputs for a batch with
            their gradients.
        capacity_bytes: what it may have.
    """

    device: str
    layers: tuple[str, ...]
    weight_bytes: int
    placed_bytes: int
    capacity_bytes: int


class Placement(records.Record):
    """A model whose layers are on several devices.

    Attributes:
        parts: of the devices, in the order in which they compute.
        crossing_bytes_per_step: outputs that go from one device to another in a step, and their
            gradients that go back; None of a subclassed model, whose layers do not tell.
    """

    parts: tuple[DevicePart, ...]
    crossing_bytes_per_step: int | None
