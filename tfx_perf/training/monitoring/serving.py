"""Shows a training while it lasts: in the terminal, and its metrics over HTTP."""

import contextlib
import logging
from collections.abc import Callable, Iterator

from tfx_perf.config import MonitoringSettings
from tfx_perf.core import console, periodic, workers
from tfx_perf.training.monitoring.live_training import LiveTraining

_LOGGER = logging.getLogger(__name__)

_SECONDS = 2.0  # between two looks at how far the training is


@contextlib.contextmanager
def announcing(
    training: LiveTraining, *, step_count: int | None, address: str = ""
) -> Iterator[None]:
    """Prints progress from another thread inside the context, on the first worker.

    There is no thread where nobody waits. `address` is where metrics are served, if they are.
    """
    if not (console.is_status_watched() and workers.this().is_chief):
        yield
        return
    of = f" of {step_count:,}" if step_count else ""
    served = f"; metrics at {address}" if address else ""
    console.set_status(f"training{served}")

    def how_far() -> str:
        done = training.done_count
        return f"{done:,}{of} steps done" if done else "tracing, compiling and the first steps"

    with periodic.calling(
        lambda: console.set_status(f"training: {how_far()}{served}"), seconds=_SECONDS
    ):
        yield
    console.set_status("trained; saving and measuring the model")


@contextlib.contextmanager
def serving(settings: MonitoringSettings, training: LiveTraining) -> Iterator[str]:
    """Serves scrapes over HTTP inside the context, if the settings want it; yields the address.

    If there can be no server (the port is taken, the library is missing), a warning is logged, the
    training goes on, and the address is empty. Stopping the server takes up to half a second.
    """
    address, stop = _started(settings, training)
    try:
        yield address
    finally:
        stop()


def _started(
    settings: MonitoringSettings, training: LiveTraining
) -> tuple[str, Callable[[], None]]:
    """Starts the server; returns its address, and a function that stops it."""
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
