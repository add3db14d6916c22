"""A variable in parts, of which each may be on another device."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def of_parts(parts: Sequence[tf.Variable]) -> Any:
    """Returns parts as one table for `tf.nn.embedding_lookup`; the first may have one row more."""
    return tf.__internal__.distribute.ShardedVariable(list(parts))
