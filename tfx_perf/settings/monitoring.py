"""Settings of what a training shows while it goes on."""

from typing import Annotated

import pydantic

from tfx_perf.settings.section import Section
from tfx_perf.settings.values import NotEmpty


class MonitoringSettings(Section):
    """What OptimizedTrainer serves to Prometheus while it trains.

    It changes nothing about the training: neither plan nor checkpoint depends on it.

    Attributes:
        metrics_port: TCP port of the HTTP server, customarily 9090; None: nothing is served.
        metrics_host: address to listen at. A scrape comes from another machine or pod, so by
            default every IPv4 interface; `::` for IPv6, `127.0.0.1` for this machine only.
    """

    metrics_port: Annotated[int, pydantic.Field(ge=1, le=65535)] | None = None
    metrics_host: NotEmpty = "0.0.0.0"
