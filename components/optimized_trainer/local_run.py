"""Workers on this machine, from their start to their end."""

import contextlib
import logging
import pathlib
from collections.abc import Callable

from tfx_perf import isolate
from tfx_perf.components.optimized_trainer import one_worker
from tfx_perf.components.optimized_trainer.exchange import Exchange
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import console, workers
from tfx_perf.distribute import failure, supervise
from tfx_perf.distribute.parameter_server import server
from tfx_perf.isolate.termination import Termination

_TITLE = "this machine"
_WORKER = f"{one_worker.__name__}:{one_worker.carry_out.__name__}"
_SERVER = f"{server.__name__}:{server.serve.__name__}"

_LOGGER = logging.getLogger(__name__)


class LocalRun:
    """Runs the workers of one training on this machine; SIGTERM (`termination`) ends them all."""

    def __init__(
        self,
        settings: DistributionSettings,
        *,
        exchange: Exchange,
        log_folder: pathlib.Path,
        termination: Termination,
    ) -> None:
        self._settings, self._exchange = settings, exchange
        self._log_folder, self._termination = log_folder, termination

    def run(
        self, *, prepare: Callable[[], None], collect: Callable[[tuple[str, ...]], None]
    ) -> None:
        """Runs the workers between `prepare` and `collect`, which gets the failures before."""
        self._log_folder.mkdir(parents=True, exist_ok=True)
        prepare()
        try:
            notes = failure.until_done(
                self._train,
                restarts=self._settings.restarts,
                begin_again=self._exchange.forget_results,
            )
            if not self._termination.requested:
                console.set_status("taking the model from the workers; writing the report")
                collect((*notes, *self._failed_threads()))
        finally:
            self._exchange.remove()

    def _failed_threads(self) -> tuple[str, ...]:
        settings = self._settings
        names = workers.names_of(settings.worker_count, settings.servers)
        notes = failure.failed_threads(self._log_folder, names=names)
        for note in notes:
            _LOGGER.warning("%s.", note[:1].upper() + note[1:])
        return notes

    def _train(self) -> None:
        servers = self._settings.servers
        tasks = supervise.tasks(
            worker_count=self._settings.worker_count,
            server_count=servers.server_count if servers else 0,
        )
        names = [task.name for task in tasks]
        _LOGGER.info("%s train on this machine; see %s.", ", ".join(names), self._log_folder)
        console.set_status(f"starting {', '.join(names)}")
        attempt = supervise.train(
            tasks,
            start=self._started,
            log_folder=self._log_folder,
            failure_folder=self._exchange.folder,
            restarts=self._settings.restarts,
            heartbeat_timeout_seconds=self._settings.heartbeat_timeout_seconds,
            is_over=lambda: self._termination.requested,
            say=_LOGGER.warning,
        )
        if attempt.cause is not None and attempt.log is not None:
            log = attempt.log.read_text(encoding="utf-8", errors="replace")
            raise failure.failed(_TITLE, attempt.cause, logs={attempt.cause.worker: log})

    def _started(self, task: supervise.Task) -> contextlib.AbstractContextManager[isolate.Child]:
        target, arguments = _WORKER, {"folder": str(self._exchange.folder)}
        if task.only_serves:
            target, arguments = _SERVER, {}
        return isolate.started(
            target,
            arguments,
            log_path=self._log_folder / workers.log_file(task.name),
            environment=task.environment,
            is_forked=True,
        )
