"""Sends of a gradient its largest entries only, and keeps the rest for later steps.

Each replica adds to its gradient what it has not sent yet, the residual, and sends values and
places of the largest entries, by magnitude. What it does not send stays in the residual, so that
nothing is lost: what all have sent and what all have kept is the sum of their gradients. The
algorithm is that of "Sparsified SGD with memory" (Stich et al., 2018), for each variable by itself
as in "Deep Gradient Compression" (Lin et al., 2018), without the latter's momentum correction and
warm-up.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

Gradient = Any  # a tensor or `tf.IndexedSlices`

_FEWEST_ENTRIES = 1024  # of fewer, what is sent is not what takes the time
_PLACES = "_gradient_residuals"  # in an optimizer, whose state they are
_MOST_INT32 = 2**31


def residuals_in(optimizer: Any) -> list[tf.Variable]:
    """Returns what the replicas have not sent yet of the gradients for an optimizer."""
    found = vars(optimizer).get(_PLACES)
    return [] if found is None else found.variables


def is_cut(gradient: Gradient) -> bool:
    """Whether only a part of a gradient is sent; sparse and small ones are sent whole."""
    if not isinstance(gradient, tf.Tensor) or not gradient.dtype.is_floating:
        return False
    return (gradient.shape.num_elements() or 0) >= _FEWEST_ENTRIES


def sent_count(entry_count: int, ratio: float) -> int:
    """Returns how many entries of a gradient are sent.

    Args:
        entry_count: of the gradient.
        ratio: the share of them that is.
    """
    return math.ceil(entry_count * ratio)


class TopK:
    """The largest entries of gradients, and their sums over replicas."""

    def __init__(self, optimizer: Any, *, ratio: float, dtype: str | None) -> None:
        """Has sent nothing yet.

        Args:
            optimizer: a model's, which keeps the residuals; they are zero at first.
            ratio: the share of a gradient's entries that is sent.
            dtype: in which values are sent; None: in their own.
        """
        # Not tracked: what users save of the optimizer stays what it was.
        self._residuals = vars(optimizer).setdefault(_PLACES, _Residuals())
        self._ratio = ratio
        self._dtype = None if dtype is None else tf.as_dtype(dtype)

    def summed(
        self,
        gradients: Sequence[tf.Tensor],
        weights: Sequence[Any],
        *,
        finite: tf.Tensor,
    ) -> list[tf.Tensor]:
        """Returns the sums over all replicas of the parts of gradients that are sent.

        If a sum is not finite, the residual stays as it was: the step is skipped, or is a blow-up.

        Args:
            gradients: of this replica, for which `is_cut` holds.
            weights: their variables.
            finite: whether all sums are that have nothing to do with these.
        """
        kept = self._residuals.of(weights)
        wholes = [
            gradient + tf.cast(each, gradient.dtype)
            for gradient, each in zip(gradients, kept, strict=True)
        ]
        parts = [self._largest(whole) for whole in wholes]
        totals = self._gathered(parts)
        finite &= tf.reduce_all([tf.reduce_all(tf.math.is_finite(total)) for total in totals])
        for residual, whole, part in zip(kept, wholes, parts, strict=True):
            left = part.taken_from(whole)
            residual.assign(tf.where(finite, left, tf.convert_to_tensor(residual)))
        return totals

    def _largest(self, whole: tf.Tensor) -> "_Part":
        flat = tf.reshape(whole, [-1])
        # What is not finite is sent first, so that all replicas see it.
        sizes = tf.where(tf.math.is_finite(flat), tf.abs(flat), math.inf)
        count = sent_count(whole.shape.num_elements(), self._ratio)
        _, places = tf.math.top_k(sizes, count, sorted=False)
        values = tf.gather(flat, places)
        narrow = self._dtype
        if narrow is not None and narrow.size < whole.dtype.size:
            # What is too large for the type is sent in several steps.
            fitting = tf.saturate_cast(values, narrow)
            values = tf.where(tf.math.is_finite(values), fitting, tf.cast(values, narrow))
        return _Part(values, places, whole.shape, whole.dtype)

    def _gathered(self, parts: "Sequence[_Part]") -> list[tf.Tensor]:
        """Returns the sums of what all replicas have sent, of each gradient."""
        totals: list[Any] = [None] * len(parts)
        for dtype in dict.fromkeys(part.values.dtype for part in parts):
            group = [index for index, part in enumerate(parts) if part.values.dtype == dtype]
            found = _sum_of_parts([parts[index] for index in group])
            for index, total in zip(group, found, strict=True):
                totals[index] = total
        return totals


class _Part(NamedTuple):
    """What is sent of a gradient.

    Attributes:
        values: of the entries, in the type in which they are sent.
        places: theirs among all entries, int32.
        shape: of the gradient.
        dtype: likewise.
    """

    values: tf.Tensor
    places: tf.Tensor
    shape: tf.TensorShape
    dtype: tf.DType

    def taken_from(self, whole: tf.Tensor) -> tf.Tensor:
        """Returns what is left of a gradient, what the type of the values cannot hold included."""
        sent = tf.cast(self.values, whole.dtype)
        flat = tf.reshape(whole, [-1])
        left = tf.tensor_scatter_nd_sub(flat, self.places[:, tf.newaxis], sent)
        return tf.reshape(left, whole.shape)


class _Residuals:
    """A variable for each weight, of which each replica has a value of its own.

    Attributes:
        variables: in the order in which they were made.
    """

    def __init__(self) -> None:
        self.variables: list[tf.Variable] = []
        self._places: dict[int, int] = {}  # by the weight's id; the optimizer's model keeps it

    def of(self, weights: Sequence[Any]) -> list[tf.Variable]:
        """Returns those of some weights; all replicas have to call it."""

        def make(strategy: tf.distribute.Strategy) -> None:
            for weight in weights:
                if id(weight) not in self._places:
                    self._places[id(weight)] = len(self.variables)
                    with tf.init_scope(), strategy.scope():
                        zeros = tf.zeros(weight.shape, weight.dtype)
                        residual = tf.Variable(zeros, trainable=False, name="gradient_residual")
                        self.variables.append(residual)

        tf.distribute.get_replica_context().merge_call(make)
        return [self.variables[self._places[id(weight)]] for weight in weights]


def _sum_of_parts(parts: Sequence[_Part]) -> list[tf.Tensor]:
    """Returns the sums of what all replicas have sent, of gradients whose values have one type.

    Values and places go into one message, as bits.
    """
    context = tf.distribute.get_replica_context()
    sizes = [part.shape.num_elements() for part in parts]
    begins = [sum(sizes[:index]) for index in range(len(sizes))]
    value_type, dtype = parts[0].values.dtype, parts[0].dtype
    is_wide = value_type.size == tf.float64.size or sum(sizes) >= _MOST_INT32
    place_type = tf.int64 if is_wide else tf.int32
    values = tf.concat([part.values for part in parts], axis=0)
    places = tf.concat(
        [tf.cast(part.places, place_type) + b for part, b in zip(parts, begins, strict=True)],
        axis=0,
    )
    # The operations that gather know no bfloat16, and integers would not be measured.
    bits = tf.float16 if value_type == tf.bfloat16 else value_type
    sent_values = tf.bitcast(values, bits)
    sent_places = tf.reshape(tf.bitcast(places, bits), [-1])
    message = context.all_gather(tf.concat([sent_values, sent_places], axis=0), axis=0)
    per_replica = tf.reshape(message, [context.num_replicas_in_sync, -1])
    count = values.shape[0]
    all_values = tf.cast(tf.bitcast(per_replica[:, :count], value_type), dtype)
    words = place_type.size // bits.size
    shape = [-1, count, words] if words > 1 else [-1, count]
    all_places = tf.bitcast(tf.reshape(per_replica[:, count:], shape), place_type)
    total = tf.zeros([sum(sizes)], dtype)
    for replica in range(context.num_replicas_in_sync):  # in one order, so that all have the same
        total = tf.tensor_scatter_nd_add(
            total, all_places[replica][:, tf.newaxis], all_values[replica]
        )
    return [
        tf.reshape(flat, part.shape)
        for flat, part in zip(tf.split(total, sizes), parts, strict=True)
    ]
