"""A variable in parts, of which each may be on another device."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def of_parts(parts: Sequence[tf.Variable]) -> Any:
    """Returns what `tf.nn.embedding_lookup` looks rows up in, each where its part is.

    As a tensor it is all rows. If the parts are unequal, the first ones must have one row more.
    """
    return tf.__internal__.distribute.ShardedVariable(list(parts))
