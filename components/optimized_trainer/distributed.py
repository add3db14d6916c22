"""OptimizedTrainer's side of a training on several workers: starts it and collects the model."""

import json
import logging
import pathlib
import tempfile
import time
from collections.abc import Callable

from tfx_perf import isolate
from tfx_perf.components import training_job
from tfx_perf.components.optimized_trainer import worker_training
from tfx_perf.components.optimized_trainer.exchange import Exchange
from tfx_perf.components.types import Artifacts
from tfx_perf.core import cache_key, console, errors, workers
from tfx_perf.core.unmeasured import MissingMeasurement
from tfx_perf.distribute import failure, supervise, worker
from tfx_perf.distribute.kubernetes import manifests
from tfx_perf.distribute.kubernetes.job_api import JobApi
from tfx_perf.distribute.kubernetes.job_kind import KINDS
from tfx_perf.distribute.kubernetes.job_run import JobRun
from tfx_perf.isolate.termination import Termination
from tfx_perf.report.page import Origin
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.tuning.earlier import KnownPlan

_POLL_SECONDS = 0.2
# NFS may show a folder as it was up to a minute ago.
_VISIBLE_SECONDS = 90.0
_DEFAULT_WORDS = ("optimized-trainer",)
_Publish = Callable[[TrainingRecord | MissingMeasurement], None]
_Collect = Callable[[Exchange, tuple[str, ...]], None]
_TITLE = "this machine"
_WORKER = f"{worker.__name__}:{worker.carry_out.__name__}"
_TRAIN = f"{worker_training.__name__}:{worker_training.train.__name__}"
_LOGGER = logging.getLogger(__name__)


def train(
    job: training_job.TrainingJob,
    output_dict: Artifacts,
    *,
    known: KnownPlan,
    publish: _Publish,
    origin: Origin,
    log_folder: pathlib.Path,
) -> None:
    """Trains on the workers of `distribution` and publishes the first worker's record.

    On SIGTERM, the workers are ended before this process.
    """

    def collect(exchange: Exchange, notes: tuple[str, ...]) -> None:
        if exchange.result is None:
            raise errors.MeasurementError(
                f"Expected the first worker to leave its results in {exchange.folder}. "
                "Received: none. Is distribution.job.shared_folder the same volume in all "
                "containers?"
            )
        record = exchange.result.record
        exchange.collect(output_dict)
        if isinstance(record, TrainingRecord):
            record = record.model_copy(update={"notes": (*record.notes, *notes)})
        publish(record)

    with Termination() as termination:
        if job.settings.distribution.job is None:
            _on_this_machine(
                job, collect, known=known, log_folder=log_folder, termination=termination
            )
        else:
            digest = _digest(job, output_dict)
            is_named = origin.pipeline and origin.node
            words = (origin.pipeline, origin.node) if is_named else _DEFAULT_WORDS
            _in_a_cluster(
                job,
                collect,
                known=known,
                name=manifests.job_name(*words, digest=digest),
                digest=digest,
                log_folder=log_folder,
                termination=termination,
            )


def _on_this_machine(
    job: training_job.TrainingJob,
    collect: _Collect,
    *,
    known: KnownPlan,
    log_folder: pathlib.Path,
    termination: Termination,
) -> None:
    settings = job.settings.distribution
    server_count = settings.parameter_servers or 0
    names = workers.names_of(settings.worker_count, server_count=server_count)
    isolate.import_early([worker_training.__name__])
    log_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="optimized-trainer-") as folder:
        exchange = Exchange(pathlib.Path(folder, "exchange"), sees_all=True)
        exchange.prepare(job, known)
        _LOGGER.info("%s train on this machine; see %s.", ", ".join(names), log_folder)
        console.set_status(f"starting {', '.join(names)}")
        given = {
            "folder": str(exchange.folder),
            "train": _TRAIN,
            "start_timeout_seconds": settings.start_timeout_seconds,
        }
        last = supervise.train(
            lambda: supervise.tasks(
                worker_count=settings.worker_count,
                server_count=server_count,
                folder=exchange.folder,
            ),
            start=lambda task: isolate.started(
                _WORKER,
                given,
                log_path=log_folder / workers.log_file(task.name),
                environment=task.environment,
                is_forked=True,
            ),
            folder=exchange.folder,
            log_folder=log_folder,
            restarts=settings.restarts,
            heartbeat_timeout_seconds=settings.heartbeat_timeout_seconds,
            is_over=lambda: termination.requested,
            say=_LOGGER.warning,
        )
        if last.cause is not None and last.log is not None:
            log = last.log.read_text(encoding="utf-8", errors="replace")
            raise failure.failed(_TITLE, last.cause, log=log)
        if not termination.requested:
            console.set_status("taking the model from the workers; writing the report")
            threads = failure.failed_threads(log_folder, names=names)
            collect(exchange, (*last.notes, *threads))


def _in_a_cluster(
    job: training_job.TrainingJob,
    collect: _Collect,
    *,
    known: KnownPlan,
    name: str,
    digest: str,
    log_folder: pathlib.Path,
    termination: Termination,
) -> None:
    settings = job.settings.distribution
    assert settings.job is not None
    exchange = Exchange(pathlib.Path(settings.job.shared_folder, name))
    api = JobApi(KINDS[settings.job.kind])
    api.pause = _pause_of(termination)

    def collect_if_visible(notes: tuple[str, ...]) -> None:
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while exchange.result is None and time.monotonic() < deadline:
            api.pause(_POLL_SECONDS)
        collect(exchange, notes)

    run = JobRun(
        api,
        settings,
        manifest=manifests.manifest(
            settings,
            name=name,
            digest=digest,
            command=[
                *("python", "-m", worker.__name__),
                *("--job", str(exchange.folder)),
                *("--train", _TRAIN),
                *("--start-timeout", str(settings.start_timeout_seconds)),
            ],
        ),
        folder=exchange.folder,
        has_result=lambda: exchange.result is not None,
        log_folder=log_folder,
    )
    run.run(prepare=lambda: exchange.prepare(job, known), collect=collect_if_visible)


def _pause_of(termination: Termination) -> Callable[[float], None]:
    def pause(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            if termination.requested:
                raise errors.MeasurementError("The training was ended by SIGTERM.")

    return pause


def _digest(job: training_job.TrainingJob, output_dict: Artifacts) -> str:
    """Returns a digest that an execution shares only with its own retries."""
    inputs = {key: [item.uri for item in items] for key, items in job.input_dict.items()}
    outputs = {key: [item.uri for item in items] for key, items in output_dict.items()}
    given = [inputs, outputs, job.exec_properties, job.code]
    return cache_key.digest(json.dumps(given, sort_keys=True, default=str).encode())
