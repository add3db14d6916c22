"""Network: how fast workers exchange what they reduce; see `network_probe`, which measures it."""

from tfx_perf import records


class Network(records.Record):
    """What a ring reduction takes: its messages one after the other.

    Attributes:
        latency_seconds: of a message with nothing in it.
        bytes_per_second: of a worker, in each direction.
    """

    latency_seconds: float
    bytes_per_second: float

    def reduction_seconds(self, size_bytes: float, *, workers: int, tensors: float = 1.0) -> float:
        """Returns what reducing some tensors takes.

        By the ring algorithm, as TensorFlow does it on CPUs: each worker sends 2 (N - 1) messages
        with an Nth of the data (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for
        clusters of workstations, 2009).

        Args:
            size_bytes: of all tensors together.
            workers: how many have such tensors.
            tensors: how many, one after the other.
        """
        messages = 2 * (workers - 1)
        transfer_seconds = messages / workers * size_bytes / self.bytes_per_second
        return tensors * messages * self.latency_seconds + transfer_seconds
