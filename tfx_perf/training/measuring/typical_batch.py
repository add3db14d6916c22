"""TypicalBatch: the batch that a step's FLOPs are counted for.

Sequences that are padded batch by batch make a step of every batch another one. The first one that
comes out of a shuffle would give every run of the same code FLOPs of its own. So where batches
have no fixed shape, the one of median size counts, of the first ones in the order of the data.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from tfx_perf.interception import FitCall
from tfx_perf.memory import batches
from tfx_perf.tf_data import independent

_LOOKED_AT = 32


@dataclasses.dataclass(frozen=True)
class TypicalBatch:
    """A batch of a training.

    Attributes:
        batch: an element of the training data, None if there is no way to get one.
        is_repeatable: whether another run of the same code finds one of about the same shape.
    """

    batch: Any
    is_repeatable: bool


def of(call: FitCall, first: Any) -> TypicalBatch:
    """Returns the typical batch; nothing is taken from the user's data.

    Args:
        call: the `fit`.
        first: the first batch of its training, None if it was not noted.
    """
    data = call.arguments["x"]
    if not isinstance(data, tf.data.Dataset) or not _varies(data.element_spec):
        return TypicalBatch(batches.peek(call) if first is None else first, is_repeatable=True)
    again = independent.independent(data, without=independent.UNORDERED)
    if again is None:  # who reads it once more may take what others need
        return TypicalBatch(first, is_repeatable=False)
    try:
        found = _median(again.take(_LOOKED_AT))
    except tf.errors.OpError:  # what the training did not read may be damaged
        found = None
    if found is None:
        return TypicalBatch(first, is_repeatable=False)
    return TypicalBatch(found, is_repeatable=True)


def _median(data: tf.data.Dataset) -> Any:
    """Returns the batch of median size, of two the larger; None if there is none.

    The data are read twice, since all batches at once might be more than there is memory for.
    """
    sizes = sorted(map(_size, data))
    if not sizes:
        return None
    median = sizes[len(sizes) // 2]
    return min(data, key=lambda batch: abs(_size(batch) - median))


def _varies(element_spec: Any) -> bool:
    """Whether batches differ by more than their number of examples."""
    return any(
        not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None or None in spec.shape[1:]
        for spec in tf.nest.flatten(element_spec)
    )


def _size(batch: Any) -> int:
    """Returns the number of values in a batch."""
    parts = tf.nest.flatten(batch, expand_composites=True)
    return sum(part.shape.num_elements() for part in parts)
