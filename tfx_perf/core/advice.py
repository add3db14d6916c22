"""Advice: what a measurement gives the user reason to change."""

from tfx_perf.core import records


class Advice(records.Record):
    """A warning.

    Attributes:
        code: what it is about, in a word that stays the same.
        message: what was measured and what to do, in a sentence.
    """

    code: str
    message: str
