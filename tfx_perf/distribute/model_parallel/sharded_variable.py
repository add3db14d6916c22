"""A variable in parts, of which each may be on another device."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def of_parts(parts: Sequence[tf.Variable]) -> Any:
    """Returns what `tf.nn.embedding_lookup` looks rows up in, each where its part is.

    As a tensor it is all rows.

    Args:
        parts: with the rows in their order; `tf.nn.embedding_lookup` takes the first ones to have a
            row more where they do not have as many.
    """
    return tf.__internal__.distribute.ShardedVariable(list(parts))
