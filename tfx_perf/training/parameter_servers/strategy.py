"""The strategy of a coordinator that the user's code makes none for."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfx_perf import workers
from tfx_perf.tf_internals import clusters


@contextlib.contextmanager
def scope(servers: workers.ParameterServers) -> Iterator[None]:
    """Builds what the code inside builds on the servers of `TF_CONFIG`.

    Variables of more than 256 KiB are divided among the servers. Code that makes the strategy
    itself gets this one, and divides as it says.

    Args:
        servers: how many there are.
    """
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        max_shards=servers.server_count
    )
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver(), variable_partitioner=partitioner
    )
    with clusters.made_once(strategy), strategy.scope():
        yield
