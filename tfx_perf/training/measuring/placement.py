"""Placement: what is on which device, as the record tells it."""

from tfx_perf.core import records


class DevicePart(records.Record):
    """What one device has of a model.

    Attributes:
        device: its name, e.g. `/device:GPU:0`.
        layers: names, in the order in which they run.
        table_rows: how many rows it has of each embedding that is cut over all devices.
        weight_bytes: of its layers' weights, and of those rows.
        placed_bytes: of weights, gradients, what the optimizer keeps, and outputs for a batch with
            their gradients.
        capacity_bytes: what it may have.
    """

    device: str
    layers: tuple[str, ...]
    table_rows: dict[str, int]
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
