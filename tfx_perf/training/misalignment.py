"""Misalignment: a matrix product whose size does not suit the device."""

from tfx_perf import records, statistics


class Misalignment(records.Record):
    """A product that would run at a higher rate if its dimensions were rounded up.

    Attributes:
        layer: where in the model.
        product: as it is, in words.
        aligned: as it could be.
        gain: FLOPs per second of the aligned one over those of the one that is.
    """

    layer: str
    product: str
    aligned: str
    gain: statistics.Interval
