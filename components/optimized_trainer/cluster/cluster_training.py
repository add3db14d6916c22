"""OptimizedTrainer's side of a training on several workers: hands it over, takes the model."""

import json
import pathlib
import time
from collections.abc import Callable

from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils, standard_component_specs
from tfx.utils import path_utils

from tfx_perf import errors, fingerprint, storage
from tfx_perf.components import artifacts
from tfx_perf.components.optimized_trainer import training, worker
from tfx_perf.components.optimized_trainer.cluster import manifests, names
from tfx_perf.components.optimized_trainer.cluster.exchange import Exchange
from tfx_perf.components.optimized_trainer.cluster.job_api import JobApi
from tfx_perf.components.optimized_trainer.cluster.job_kind import KINDS
from tfx_perf.components.optimized_trainer.cluster.job_run import JobRun
from tfx_perf.components.training_job import job as jobs
from tfx_perf.settings.distribution import ClusterJob
from tfx_perf.training.recovery.termination import Termination

_POLL_SECONDS = 0.2
# NFS may show a folder as it was up to a minute ago.
_VISIBLE_SECONDS = 90.0
_DEFAULT_WORDS = ("optimized-trainer",)

_Artifacts = dict[str, list[artifact.Artifact]]


def train(
    job: jobs.TrainingJob,
    output_dict: _Artifacts,
    *,
    settings: ClusterJob,
    context: base_executor.BaseExecutor.Context | None,
) -> None:
    """Has the workers of `distribution.job` train, and publishes what the first one measured.

    SIGTERM deletes their job before it takes effect.

    Args:
        job: the training.
        output_dict: OptimizedTrainer's.
        settings: of the workers' job, `distribution.job`.
        context: the executor's; it names the job and the report.

    Raises:
        UserError: the cluster refuses the job, or the training has found something wrong.
        MeasurementError: a worker failed, the job was deleted, or the time is over.
    """
    target = artifact_utils.get_single_instance(output_dict["perf_metrics"])
    origin = artifacts.origin_of(context, job.input_dict)
    digest = _digest(job, output_dict)
    name = names.job_name(*_words(context), digest=digest)
    exchange = Exchange(pathlib.Path(settings.shared_folder, name))
    api = JobApi(KINDS[settings.kind], namespace=settings.namespace)
    command = ["python", "-m", worker.__name__, "--job", str(exchange.folder)]
    model = artifact_utils.get_single_instance(output_dict[standard_component_specs.MODEL_KEY])

    def collect() -> None:
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while (result := exchange.result) is None and time.monotonic() < deadline:
            api.pause(_POLL_SECONDS)
        if result is None:
            raise errors.MeasurementError(
                f"Expected the first worker to leave its results in {exchange.folder}. Received: "
                "none. Is distribution.job.shared_folder the same volume in all containers?"
            )
        exchange.collect(output_dict)
        folder = path_utils.serving_model_dir(model.uri)
        training.publish(
            job, result.record, model_folder=folder, target=target, origin=origin
        )

    with Termination() as termination, storage.local_folder(target.uri) as log_folder:
        api.pause = _pause_of(termination)
        run = JobRun(
            api,
            settings,
            manifest=manifests.manifest(settings, name=name, digest=digest, command=command),
            exchange=exchange,
            log_folder=log_folder,
        )
        run.run(prepare=lambda: exchange.prepare(job), collect=collect)


def _pause_of(termination: Termination) -> Callable[[float], None]:
    def pause(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            if termination.requested:
                raise errors.MeasurementError("The training was ended by SIGTERM.")

    return pause


def _words(context: base_executor.BaseExecutor.Context | None) -> tuple[str, ...]:
    """Returns the names of the pipeline and the node, where the orchestrator tells them."""
    if context is None or context.pipeline_info is None or context.pipeline_node is None:
        return _DEFAULT_WORDS
    return context.pipeline_info.id, context.pipeline_node.node_info.id


def _digest(job: jobs.TrainingJob, output_dict: _Artifacts) -> str:
    """Returns what an execution that is tried again has in common with no other one."""
    inputs = {key: [item.uri for item in items] for key, items in job.input_dict.items()}
    outputs = {key: [item.uri for item in items] for key, items in output_dict.items()}
    given = [inputs, outputs, job.exec_properties, job.code]
    return fingerprint.digest(json.dumps(given, sort_keys=True, default=str).encode())
