"""OptimizedTrainer's side of a training on several workers: hands it over, takes the model."""

import contextlib
import json
import logging
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Optional

from tfx.dsl.components.base import base_executor
from tfx.types import artifact

from tfx_perf import isolate
from tfx_perf.components import training_job
from tfx_perf.components.optimized_trainer import checkpoints, one_worker, worker
from tfx_perf.components.optimized_trainer.exchange import Exchange
from tfx_perf.components.optimized_trainer.job_run import JobRun
from tfx_perf.components.optimized_trainer.known_plan import KnownPlan
from tfx_perf.config.distribution import ClusterJob, DistributionSettings
from tfx_perf.core import cache_key, console, errors, workers
from tfx_perf.core.unmeasured import Unmeasured
from tfx_perf.distribute import failure, supervise
from tfx_perf.distribute.kubernetes import manifests
from tfx_perf.distribute.kubernetes.job_api import JobApi
from tfx_perf.distribute.kubernetes.job_kind import KINDS
from tfx_perf.distribute.parameter_server import server
from tfx_perf.isolate.termination import Termination
from tfx_perf.training.record import TrainingRecord

_POLL_SECONDS = 0.2
# NFS may show a folder as it was up to a minute ago.
_VISIBLE_SECONDS = 90.0
_DEFAULT_WORDS = ("optimized-trainer",)
_CHECKPOINTS = "checkpoints-"
_Artifacts = dict[str, list[artifact.Artifact]]
_Publish = Callable[[TrainingRecord | Unmeasured], None]
_Collect = Callable[[Exchange, tuple[str, ...]], None]
_Context = Optional[base_executor.BaseExecutor.Context]  # noqa: UP045 (TFX is untyped)
_TITLE = "this machine"
_WORKER = f"{one_worker.__name__}:{one_worker.carry_out.__name__}"
_SERVER = f"{server.__name__}:{server.serve.__name__}"
_LOGGER = logging.getLogger(__name__)


def train(
    job: training_job.TrainingJob,
    output_dict: _Artifacts,
    *,
    known: KnownPlan,
    publish: _Publish,
    context: _Context,
    checkpoint_folder: str | None,
    log_folder: pathlib.Path,
) -> None:
    """Trains on the workers of `distribution` and publishes the first one's record.

    SIGTERM ends the workers before it takes effect.
    """

    def collect(exchange: Exchange, notes: tuple[str, ...]) -> None:
        result = exchange.result
        if result is None:
            raise errors.MeasurementError(
                f"Expected the first worker to leave its results in {exchange.folder}. "
                "Received: none. Is distribution.job.shared_folder the same volume in all "
                "containers?"
            )
        exchange.collect(output_dict)
        publish(result.with_notes(notes).record)

    cluster = job.settings.distribution.job
    with Termination() as termination:
        if cluster is None:
            _on_this_machine(
                job,
                collect,
                known=known,
                checkpoint_folder=checkpoint_folder,
                log_folder=log_folder,
                termination=termination,
            )
        else:
            digest = _digest(job, output_dict)
            _in_a_cluster(
                job,
                collect,
                known=known,
                settings=cluster,
                name=manifests.job_name(*_words(context), digest=digest),
                digest=digest,
                log_folder=log_folder,
                termination=termination,
            )


def _on_this_machine(
    job: training_job.TrainingJob,
    collect: _Collect,
    *,
    known: KnownPlan,
    checkpoint_folder: str | None,
    log_folder: pathlib.Path,
    termination: Termination,
) -> None:
    with tempfile.TemporaryDirectory(prefix="optimized-trainer-") as folder:
        exchange = Exchange(pathlib.Path(folder, "exchange"), sees_all=True)
        run = LocalRun(
            job.settings.distribution,
            exchange=exchange,
            log_folder=log_folder,
            termination=termination,
        )
        run.run(
            prepare=lambda: exchange.prepare(job.with_checkpoints_in(checkpoint_folder), known),
            collect=lambda notes: collect(exchange, notes),
        )


def _in_a_cluster(
    job: training_job.TrainingJob,
    collect: _Collect,
    *,
    known: KnownPlan,
    settings: ClusterJob,
    name: str,
    digest: str,
    log_folder: pathlib.Path,
    termination: Termination,
) -> None:
    shared = pathlib.Path(settings.shared_folder)
    exchange = Exchange(shared / name)
    api = JobApi(KINDS[settings.kind])
    api.pause = _pause_of(termination)
    name_of_checkpoints = checkpoints.name_for(job.input_dict, job.exec_properties)
    found = job.settings.training.checkpoint_folder or str(
        shared / f"{_CHECKPOINTS}{name_of_checkpoints}"
    )

    def collect_if_visible(notes: tuple[str, ...]) -> None:
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while exchange.result is None and time.monotonic() < deadline:
            api.pause(_POLL_SECONDS)
        collect(exchange, notes)

    run = JobRun(
        api,
        settings,
        restarts=job.settings.distribution.restarts,
        manifest=manifests.manifest(
            settings,
            name=name,
            digest=digest,
            command=["python", "-m", worker.__name__, "--job", str(exchange.folder)],
            restarts=job.settings.distribution.restarts,
            heartbeat_timeout_seconds=job.settings.distribution.heartbeat_timeout_seconds,
        ),
        exchange=exchange,
        log_folder=log_folder,
    )
    with checkpoints.tidied(found):
        run.run(
            prepare=lambda: exchange.prepare(job.with_checkpoints_in(found), known),
            collect=collect_if_visible,
        )


def _pause_of(termination: Termination) -> Callable[[float], None]:
    def pause(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            if termination.requested:
                raise errors.MeasurementError("The training was ended by SIGTERM.")

    return pause


def _words(context: _Context) -> tuple[str, ...]:
    if context is None or context.pipeline_info is None or context.pipeline_node is None:
        return _DEFAULT_WORDS
    return context.pipeline_info.id, context.pipeline_node.node_info.id


def _digest(job: training_job.TrainingJob, output_dict: _Artifacts) -> str:
    """Returns a digest that an execution shares only with its next attempt."""
    inputs = {key: [item.uri for item in items] for key, items in job.input_dict.items()}
    outputs = {key: [item.uri for item in items] for key, items in output_dict.items()}
    given = [inputs, outputs, job.exec_properties, job.code]
    return cache_key.digest(json.dumps(given, sort_keys=True, default=str).encode())


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
