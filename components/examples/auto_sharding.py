"""Has workers divide examples that are in fewer files than there are workers."""

from typing import Any

import tensorflow as tf
from tfx.dsl.io import fileio

from tfx_perf.input import source


def by_rows_if_few_files(default: source.Factory, *, worker_count: int) -> source.Factory:
    """Returns TFX's factory with datasets that have something for every worker.

    A strategy divides TFX's datasets by their files. Where there are fewer files than workers,
    some workers would get nothing, and `fit` would fail; there each reads all and takes its part.

    Args:
        default: TFX's own.
        worker_count: among how many.
    """

    def factory(file_pattern: Any, *arguments: Any, **keywords: Any) -> tf.data.Dataset:
        data = default(file_pattern, *arguments, **keywords)
        patterns = [file_pattern] if isinstance(file_pattern, str) else file_pattern
        if sum(len(fileio.glob(pattern)) for pattern in patterns) >= worker_count:
            return data
        options = tf.data.Options()
        policy = tf.data.experimental.AutoShardPolicy.DATA
        options.experimental_distribute.auto_shard_policy = policy
        return data.with_options(options)

    return factory
