"""Shows a training while it lasts: in the terminal, and its metrics over HTTP."""

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import TypeVar

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from tfx_perf.config import MonitoringSettings
from tfx_perf.core import console, errors, metrics, periodic, workers
from tfx_perf.training.measuring import accounts
from tfx_perf.training.measuring.communication import Totals
from tfx_perf.training.monitoring.live_training import RECENT_CALLS, LiveTraining

_LOGGER = logging.getLogger(__name__)
_SECONDS = 2.0  # between two updates of the progress shown
_FamilyT = TypeVar("_FamilyT", CounterMetricFamily, GaugeMetricFamily)
_PREFIX = "tfx_perf_"
# Catalogue key to the name of a counter, to which Prometheus adds `_total`; others are gauges.
_COUNTERS = {
    "train_step_count": "train_steps",
    "oom_count": "oom_steps",
    "garbage_collection_seconds": "garbage_collection_seconds",
}
_OF_RECENT_CALLS = f"Here of the last {RECENT_CALLS} calls of the train function."
_BETWEEN_SCRAPES = f"Here of the last {RECENT_CALLS} calls or more, between two scrapes."
# How figures of a running training differ in meaning from those in its record.
_REMARKS = {
    "step_time_seconds": _OF_RECENT_CALLS,
    "examples_per_second": _OF_RECENT_CALLS,
    "python_overhead_ratio": _OF_RECENT_CALLS,
    "communication_share_ratio": _BETWEEN_SCRAPES,
    "load_imbalance_ratio": _BETWEEN_SCRAPES,
    "input_wait_ratio": "As the trials measured it before the training.",
    "train_loss": "Here of the running epoch so far.",
    "train_step_count": "Restarts after a rollback.",
}


@contextlib.contextmanager
def announcing(
    training: LiveTraining, *, step_count: int | None, address: str = ""
) -> Iterator[None]:
    """Prints progress from another thread inside the context, on the first worker.

    There is no thread if the status is not watched. `address` is where metrics are served, if any.
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
    """Serves scrapes over HTTP inside the context, if configured; yields the address.

    If there can be no server (e.g. the port is taken), a warning is logged, the training continues,
    and the address is empty. Stopping the server takes up to half a second.
    """
    if settings.metrics_port is None:
        yield ""
        return
    where = f"{settings.metrics_host}:{settings.metrics_port}"
    with contextlib.ExitStack() as until:
        address = ""
        try:
            registry = prometheus_client.CollectorRegistry()
            registry.register(Exposition(training))
            server, thread = prometheus_client.start_http_server(
                settings.metrics_port, addr=settings.metrics_host, registry=registry
            )
            until.callback(thread.join)
            until.callback(server.server_close)
            until.callback(server.shutdown)  # is called first
            address = f"http://{where}/metrics"
            _LOGGER.info("Metrics are served at %s.", address)
        except Exception as error:  # training continues without a server
            _LOGGER.warning("No metrics are served at %s: %s", where, errors.in_one_line(error))
        yield address


class Exposition:
    """Collects metrics for a scrape by `prometheus_client`; logs only the first failure."""

    def __init__(self, training: LiveTraining) -> None:
        self._training = training
        self._has_warned = False

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics with their present values."""
        for read in (self._figures, self._communication, self._progress, self._model):
            try:
                yield from read()
            except Exception:  # a scrape must neither end the training nor the other figures
                if not self._has_warned:
                    _LOGGER.warning("Some metrics cannot be served.", exc_info=True)
                self._has_warned = True

    def _figures(self) -> Iterator[Metric]:
        figures = self._training.figures()
        for key, value in figures.items():
            yield from _families(key, value)
        batch_size, steps = figures["global_batch_size"], figures["train_step_count"]
        if batch_size is not None and steps is not None:
            yield CounterMetricFamily(
                f"{_PREFIX}train_examples",
                "Examples that fit trained on: the global batch size times the steps.",
                value=batch_size * steps,
            )

    def _communication(self) -> Iterator[Metric]:
        account = self._training.communication()
        if account is None:
            return
        yield _by_replica(
            CounterMetricFamily(
                f"{_PREFIX}reduced_bytes",
                "Bytes that a replica has contributed to reductions, mostly gradients.",
                labels=["replica"],
            ),
            account.totals,
            account.totals.reduced_bytes,
        )
        shares = account.wait_shares
        if shares is None:
            return
        yield _by_replica(
            GaugeMetricFamily(
                f"{_PREFIX}replica_wait_ratio",
                "Share of a step that a replica waits, from its own gradients to their sum. "
                + _BETWEEN_SCRAPES,
                labels=["replica"],
            ),
            account.totals,
            shares,
        )
        if account.totals.has_all:  # workers do not know each other's waits
            yield from _families("communication_share_ratio", accounts.communication_share(shares))
            yield from _families("load_imbalance_ratio", accounts.load_imbalance(shares))

    def _progress(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            f"{_PREFIX}last_progress_timestamp_seconds",
            "When the last call of the train function ended; before the first, when fit began.",
            value=self._training.progress_time,
        )
        yield InfoMetricFamily(
            f"{_PREFIX}training", "The model and how it is trained.", value=self._training.labels
        )

    def _model(self) -> Iterator[Metric]:
        yield from _families("train_loss", self._training.loss)
        rate = self._training.learning_rate
        if rate is not None:
            yield GaugeMetricFamily(
                f"{_PREFIX}learning_rate", "The optimizer's learning rate.", value=rate
            )


def _by_replica(family: _FamilyT, totals: Totals, values: Iterable[float]) -> _FamilyT:
    for index, value in enumerate(values, totals.first_replica):
        family.add_metric([str(index)], value)
    return family


def _families(key: str, value: float | None) -> Iterator[Metric]:
    if value is None:
        return
    text = " ".join(filter(None, [metrics.CATALOGUE[key].description, _REMARKS.get(key)]))
    if key in _COUNTERS:
        yield CounterMetricFamily(_PREFIX + _COUNTERS[key], text, value=value)
    else:
        yield GaugeMetricFamily(_PREFIX + key, text, value=value)
