"""Workers on this machine, from their start to their end."""

import contextlib
import logging
import pathlib
from collections.abc import Callable

from tfx_perf import activity, workers
from tfx_perf.components.optimized_trainer.workers import restarting, worker_process
from tfx_perf.components.optimized_trainer.workers.exchange import Exchange
from tfx_perf.components.processes import child, launching
from tfx_perf.settings.distribution import DistributionSettings
from tfx_perf.training.parameter_servers import server
from tfx_perf.training.recovery.termination import Termination

_TITLE = "this machine"
_WORKER = f"{worker_process.__name__}:{worker_process.carry_out.__name__}"
_SERVER = f"{server.__name__}:{server.serve.__name__}"

_LOGGER = logging.getLogger(__name__)


class LocalRun:
    """Runs the workers of one training.

    Args:
        settings: how many there are, and how often they are started again.
        exchange: their folder.
        log_folder: where their output goes.
        termination: with SIGTERM, all are ended.
    """

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
        """Has them train to their end.

        Args:
            prepare: fills the exchange.
            collect: takes the results out of it, given what went wrong before, in sentences.

        Raises:
            UserError: a worker has found something wrong.
            MeasurementError: a worker failed.
        """
        self._log_folder.mkdir(parents=True, exist_ok=True)
        prepare()
        try:
            notes = restarting.until_done(
                self._train,
                restarts=self._settings.restarts,
                begin_again=self._exchange.forget_results,
            )
            if not self._termination.requested:
                activity.say("taking the model from the workers; writing the report")
                collect(notes)
        finally:
            self._exchange.remove()

    def _train(self) -> None:
        servers = self._settings.servers
        tasks = launching.tasks(
            worker_count=self._settings.worker_count,
            server_count=servers.server_count if servers else 0,
            cpu_binding=self._settings.cpu_binding,
        )
        names = [task.name for task in tasks]
        paths = [self._log_path(name) for name in names]
        _LOGGER.info("%s train on this machine; see %s.", ", ".join(names), self._log_folder)
        activity.say(f"starting {', '.join(names)}")
        for path in paths:
            path.unlink(missing_ok=True)  # of the attempt before
        with launching.started(tasks, start=self._started, say=_LOGGER.warning) as launched:
            first = launching.first_failure(
                launched,
                restarts=self._settings.restarts,
                is_over=lambda: self._termination.requested,
                say=_LOGGER.warning,
            )
            codes = launched.codes
        if first is not None:
            raise restarting.failed(
                _TITLE,
                failures=self._exchange.failures,
                endings={
                    index: launching.ending(code) for index, code in enumerate(codes) if code
                },
                message="",
                logs={
                    index: path.read_text(encoding="utf-8", errors="replace")
                    for index, path in enumerate(paths)
                },
                names=dict(enumerate(names)),
            )

    def _started(
        self, task: launching.Task
    ) -> contextlib.AbstractContextManager[launching.Process]:
        target, arguments = _WORKER, {"folder": str(self._exchange.folder)}
        if task.only_serves:
            target, arguments = _SERVER, {}
        return child.started(
            target,
            arguments,
            log_path=self._log_path(task.name),
            environment=task.environment,
            from_server=True,
            cpus=task.cpus,
        )

    def _log_path(self, name: str) -> pathlib.Path:
        return self._log_folder / workers.log_file(name)
