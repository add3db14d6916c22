"""Placement: the layers of each device, for the record."""

from tfx_perf.core import records


class DevicePart(records.Record):
    """One device's part of a model."""

    device: str  # e.g. `/device:GPU:0`
    layers: tuple[str, ...]  # in the order in which they run
    table_rows: dict[str, int]  # its rows of each embedding that is cut over all devices
    weight_bytes: int  # of its layers, and of those rows
    placed_bytes: int  # of weights, gradients, slots, and a batch's outputs with gradients
    capacity_bytes: int


class Placement(records.Record):
    """A model whose layers are on several devices."""

    parts: tuple[DevicePart, ...]  # in the order in which they compute
    crossing_bytes_per_step: int | None  # outputs, and gradients back; None if unknown
