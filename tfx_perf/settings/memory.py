"""Settings of MemoryProfiler."""

from tfx_perf.settings.section import Section
from tfx_perf.settings.values import Positive, PositiveInts, Share


class MemorySettings(Section):
    """MemoryProfiler.

    Attributes:
        batch_sizes: profiled beside the module's own batch size; empty: half and double it,
            and more until the growth of the peak stands out.
        max_device_utilization: share of the memory that the largest batch may take.
        timeout_seconds: after this what has been measured is published. The steps may take half
            of it; a batch near the limit is trained on only if a quarter of it will do.
    """

    batch_sizes: PositiveInts = ()
    max_device_utilization: Share = 0.85
    timeout_seconds: Positive = 600.0
