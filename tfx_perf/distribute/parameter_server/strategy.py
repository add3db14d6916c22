"""The strategy of a coordinator whose user's code makes none."""

import tensorflow as tf

from tfx_perf import errors, workers


def make() -> tf.distribute.Strategy:
    """Returns a strategy over the servers of `TF_CONFIG`.

    Variables of more than 256 KiB are divided among the servers.

    Raises:
        UserError: there are none.
    """
    servers = workers.these_servers()
    if servers is None:
        raise errors.UserError(
            "Expected parameter servers in TF_CONFIG. Received: none. Set "
            "distribution.parameter_servers, which starts them."
        )
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        max_shards=servers.server_count
    )
    return tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver(), variable_partitioner=partitioner
    )
