"""Connects the workers before anything else runs in TensorFlow.

`MultiWorkerMirroredStrategy` must be the first thing that a program makes with TensorFlow, and a
second one hangs. But TFX, and many a `run_fn`, reads data before a strategy is made.
"""

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as implementation
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.eager import context

# TensorFlow's own 10 s are less than a busy machine or a slow volume may make a worker wait. That
# one has ended is seen by Kubernetes.
_HEARTBEAT_TIMEOUT_MS = 60_000


def start() -> None:
    """Starts this worker's server for all strategies that `run_fn` makes later."""
    # The module itself is elsewhere in every version.
    messages = implementation.coordination_config_pb2
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=multi_worker_util.coordination_leader(cluster),
        coordinated_jobs=[
            messages.CoordinatedJob(name=job, num_tasks=cluster.num_tasks(job))
            for job in ("chief", "worker")
            if job in cluster.jobs
        ],
        heartbeat_timeout_in_ms=_HEARTBEAT_TIMEOUT_MS,
    )
    tf.distribute.MultiWorkerMirroredStrategy()
    strategy = implementation.CollectiveAllReduceExtended
    strategy._std_server_started = True
    # What looks after the others is the coordination service.
    strategy._enable_check_health = False
