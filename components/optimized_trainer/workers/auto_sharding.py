"""Has workers divide examples that are in fewer files than there are workers."""

from typing import Any

import tensorflow as tf
from tfx.components.trainer import fn_args_utils
from tfx.dsl.io import fileio


def by_rows_if_few_files(
    accessor: fn_args_utils.DataAccessor, *, worker_count: int
) -> fn_args_utils.DataAccessor:
    """Returns TFX's accessor with datasets that have something for every worker.

    A strategy divides TFX's datasets by their files. Where there are fewer files than workers,
    some workers would get nothing, and `fit` would fail; there each reads all and takes its part.

    Args:
        accessor: without an input plan, whose datasets divide themselves.
        worker_count: among how many.
    """

    def factory(file_pattern: Any, *arguments: Any, **keywords: Any) -> tf.data.Dataset:
        data = accessor.tf_dataset_factory(file_pattern, *arguments, **keywords)
        patterns = [file_pattern] if isinstance(file_pattern, str) else file_pattern
        if sum(len(fileio.glob(pattern)) for pattern in patterns) >= worker_count:
            return data
        options = tf.data.Options()
        policy = tf.data.experimental.AutoShardPolicy.DATA
        options.experimental_distribute.auto_shard_policy = policy
        return data.with_options(options)

    return accessor._replace(tf_dataset_factory=factory)
