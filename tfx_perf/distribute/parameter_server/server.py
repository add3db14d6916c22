"""A process that serves: `python -m tfx_perf.distribute.parameter_server.server`.

By its task in `TF_CONFIG` it computes steps (`worker`) or holds weights (`ps`), without the user's
code: the coordinator sends what is to be computed.
"""

from typing import NoReturn

import tensorflow as tf

from tfx_perf.distribute.parameter_server import heartbeat

_PROTOCOL = "grpc"


def serve() -> NoReturn:
    """Serves until the process is ended from outside, and gives heartbeats meanwhile."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=_PROTOCOL,
    )
    with heartbeat.given():
        server.join()
    raise SystemExit("TensorFlow's server has ended.")


if __name__ == "__main__":
    serve()
