"""Settings of InputTuner."""

from tfx_perf.settings.section import Section
from tfx_perf.settings.values import GrpcAddress, NotNegative, Positive, PositiveInt


class InputSettings(Section):
    """InputTuner.

    Attributes:
        batch_size: examples in a batch while measuring; None: the training code's if it is
            given, else 256.
        time_budget_seconds: wall time of the whole search.
        memory_budget_bytes: what a candidate may hold in RAM; None: half of what is free.
        margin: how much faster than the default a candidate must be, beyond its interval.
        allow_weaker_shuffle: also choose what shuffles worse than the default.
        service_address: dispatcher of a tf.data service to try, e.g. `grpc://host:5050`.
    """

    batch_size: PositiveInt | None = None
    time_budget_seconds: Positive = 60.0
    memory_budget_bytes: PositiveInt | None = None
    margin: NotNegative = 0.02
    allow_weaker_shuffle: bool = False
    service_address: GrpcAddress | None = None
