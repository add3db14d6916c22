"""Serves a training's metrics over HTTP for as long as it lasts."""

import contextlib
import logging
from collections.abc import Callable, Iterator

from tfx_perf.config import MonitoringSettings
from tfx_perf.training.monitoring.live_training import LiveTraining

_LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def serving(settings: MonitoringSettings, training: LiveTraining) -> Iterator[str]:
    """Has an HTTP server answer scrapes while the context lasts, if the settings want one.

    If there can be none (the port is taken, the library is missing), a warning is logged and
    the training goes on. At the end the port is free again; to stop the server takes up to
    half a second.

    Args:
        settings: where to listen.
        training: what to tell of.

    Yields:
        Where the metrics are; empty if they are not served here.
    """
    address, stop = _started(settings, training)
    try:
        yield address
    finally:
        stop()


def _started(
    settings: MonitoringSettings, training: LiveTraining
) -> tuple[str, Callable[[], None]]:
    """Starts the server; returns where it answers, and what stops it."""
    if settings.metrics_port is None:
        return "", lambda: None
    where = f"{settings.metrics_host}:{settings.metrics_port}"
    try:
        # Here, so that a training that serves nothing does not need it.
        from prometheus_client import CollectorRegistry, start_http_server

        from tfx_perf.training.monitoring.exposition import Exposition

        registry = CollectorRegistry()
        registry.register(Exposition(training))
        server, thread = start_http_server(
            settings.metrics_port, addr=settings.metrics_host, registry=registry
        )
    except Exception as error:  # nobody can look on; that is no reason not to train
        _LOGGER.warning("No metrics are served at %s: %s: %s", where, type(error).__name__, error)
        return "", lambda: None
    address = f"http://{where}/metrics"
    _LOGGER.info("Metrics are served at %s.", address)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return address, stop
