"""OptimizedTrainer's side of a training on several workers: hands it over, takes the model."""

import json
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Optional

from tfx.dsl.components.base import base_executor
from tfx.types import artifact, artifact_utils, standard_component_specs
from tfx.utils import path_utils

from tfx_perf import cache_key, errors, storage
from tfx_perf.components import artifacts
from tfx_perf.components.optimized_trainer import (
    checkpoints,
    comparisons,
    plans,
    training,
    worker,
)
from tfx_perf.components.optimized_trainer.cluster import manifests, names
from tfx_perf.components.optimized_trainer.cluster.job_api import JobApi
from tfx_perf.components.optimized_trainer.cluster.job_kind import KINDS
from tfx_perf.components.optimized_trainer.cluster.job_run import JobRun
from tfx_perf.components.optimized_trainer.workers.exchange import Exchange
from tfx_perf.components.optimized_trainer.workers.known_plan import KnownPlan
from tfx_perf.components.optimized_trainer.workers.local_run import LocalRun
from tfx_perf.components.training_job import job as jobs
from tfx_perf.isolate.termination import Termination
from tfx_perf.report import origin as origins
from tfx_perf.settings.distribution import ClusterJob
from tfx_perf.training.plan import PLAIN_FIT
from tfx_perf.training.trials.choice import StrategyChoice

_POLL_SECONDS = 0.2
# NFS may show a folder as it was up to a minute ago.
_VISIBLE_SECONDS = 90.0
_DEFAULT_WORDS = ("optimized-trainer",)
_CHECKPOINTS = "checkpoints-"

_Artifacts = dict[str, list[artifact.Artifact]]
_Context = Optional[base_executor.BaseExecutor.Context]  # noqa: UP045 (TFX is untyped)


def train(
    job: jobs.TrainingJob,
    output_dict: _Artifacts,
    *,
    context: _Context,
    key: dict[str, str],
    strategy: StrategyChoice | None = None,
) -> None:
    """Has the workers of `distribution` train, and publishes what the first one measured.

    SIGTERM ends them before it takes effect.

    Args:
        job: the training.
        output_dict: OptimizedTrainer's.
        context: the executor's; it names the job and the report.
        key: of the plan; see `plan_key`.
        strategy: what the job is distributed by, if that had to be found out.

    Raises:
        UserError: the cluster refuses the job, or the training has found something wrong.
        MeasurementError: a worker failed, the job was deleted, or the time is over.
    """
    target = artifact_utils.get_single_instance(output_dict["perf_metrics"])
    publishing = _Publishing(
        output_dict,
        strategy=strategy,
        target=target,
        origin=artifacts.origin_of(context, job.input_dict),
    )
    known = _known(job, key=key, strategy=strategy)
    distribution = job.settings.distribution
    folder = job.settings.training.checkpoint_folder
    if distribution.job is None and folder is None:
        folder = checkpoints.folder_for(context, job.input_dict, job.exec_properties)
    job, known = _in_one_precision(job, known, checkpoint_folder=folder, target=target)
    with Termination() as termination, storage.local_folder(target.uri) as log_folder:
        if distribution.job is None:
            _on_this_machine(
                job,
                publishing,
                known=known,
                checkpoint_folder=folder,
                log_folder=log_folder,
                termination=termination,
            )
        else:
            _in_a_cluster(
                job,
                publishing,
                known=known,
                settings=distribution.job,
                context=context,
                log_folder=log_folder,
                termination=termination,
            )


class _Publishing:
    """Takes what workers have made to where it belongs."""

    def __init__(
        self,
        output_dict: _Artifacts,
        *,
        strategy: StrategyChoice | None,
        target: artifact.Artifact,
        origin: origins.Origin,
    ) -> None:
        self.output_dict = output_dict
        self._strategy, self._target, self._origin = strategy, target, origin

    def collect(self, job: jobs.TrainingJob, exchange: Exchange, notes: tuple[str, ...]) -> None:
        """Publishes what the first worker has left.

        Args:
            job: what was trained.
            exchange: where it is.
            notes: for the record, in sentences.

        Raises:
            MeasurementError: nothing is there.
        """
        result = exchange.result
        if result is None:
            raise errors.MeasurementError(
                f"Expected the first worker to leave its results in {exchange.folder}. "
                "Received: none. Is distribution.job.shared_folder the same volume in all "
                "containers?"
            )
        exchange.collect(self.output_dict)
        (model,) = self.output_dict[standard_component_specs.MODEL_KEY]
        training.publish(
            job,
            result.with_notes(notes).record,
            strategy=self._strategy,
            model_folder=path_utils.serving_model_dir(model.uri),
            target=self._target,
            origin=self._origin,
        )


def _on_this_machine(
    job: jobs.TrainingJob,
    publishing: _Publishing,
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
        with checkpoints.tidied(checkpoint_folder):
            run.run(
                prepare=lambda: exchange.prepare(
                    job.with_checkpoints_in(checkpoint_folder), known
                ),
                collect=lambda notes: publishing.collect(job, exchange, notes),
            )


def _in_a_cluster(
    job: jobs.TrainingJob,
    publishing: _Publishing,
    *,
    known: KnownPlan,
    settings: ClusterJob,
    context: _Context,
    log_folder: pathlib.Path,
    termination: Termination,
) -> None:
    digest = _digest(job, publishing.output_dict)
    name = names.job_name(*_words(context), digest=digest)
    shared = pathlib.Path(settings.shared_folder)
    exchange = Exchange(shared / name)
    api = JobApi(KINDS[settings.kind], namespace=settings.namespace)
    api.pause = _pause_of(termination)
    name_of_checkpoints = checkpoints.name_for(job.input_dict, job.exec_properties)
    found = job.settings.training.checkpoint_folder or str(
        shared / f"{_CHECKPOINTS}{name_of_checkpoints}"
    )

    def collect(notes: tuple[str, ...]) -> None:
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while exchange.result is None and time.monotonic() < deadline:
            api.pause(_POLL_SECONDS)
        publishing.collect(job, exchange, notes)

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
            collect=collect,
        )


def _known(
    job: jobs.TrainingJob, *, key: dict[str, str], strategy: StrategyChoice | None
) -> KnownPlan:
    if not job.settings.training.trial_budget_seconds:
        return KnownPlan()
    previous_plan = plans.previous_plan(plans.runs_before(job))
    choice = plans.known_choice(job, key, previous_plan=previous_plan, checkpoint_folder=None)
    known = KnownPlan(
        key=key,
        previous_plan=previous_plan,
        spent_seconds=strategy.turns_seconds if strategy else 0.0,
    )
    if choice is None:
        return known
    is_too_short = choice.reused_from is None
    update = {"too_short": choice.plan_reason} if is_too_short else {"choice": choice}
    return known.model_copy(update=update)


def _in_one_precision(
    job: jobs.TrainingJob,
    known: KnownPlan,
    *,
    checkpoint_folder: str | None,
    target: artifact.Artifact,
) -> tuple[jobs.TrainingJob, KnownPlan]:
    """Returns both with the precision that `auto` comes to, which takes teams of workers.

    SIGTERM ends them at once: nothing is trained yet.
    """
    if job.settings.training.precision != "auto":
        return job, known
    distribution = job.settings.distribution
    is_tried = distribution.job is None and distribution.servers is None
    if known.choice is not None and (is_tried or known.choice.plan.precision):
        return job.computed_in(known.choice.plan), known
    if not is_tried:
        return job, known
    if known.too_short or not known.key:
        return job.computed_in(PLAIN_FIT), known
    with storage.local_folder(target.uri) as log_folder:
        turns = comparisons.of_precisions(
            job,
            key=known.key,
            budget_seconds=job.settings.training.trial_budget_seconds - known.spent_seconds,
            checkpoint_folder=checkpoint_folder,
            log_folder=log_folder,
        )
    return job.computed_in(turns.plan), known.within(turns)


def _pause_of(termination: Termination) -> Callable[[float], None]:
    def pause(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            if termination.requested:
                raise errors.MeasurementError("The training was ended by SIGTERM.")

    return pause


def _words(context: _Context) -> tuple[str, ...]:
    """Returns the names of the pipeline and the node, where the orchestrator tells them."""
    if context is None or context.pipeline_info is None or context.pipeline_node is None:
        return _DEFAULT_WORDS
    return context.pipeline_info.id, context.pipeline_node.node_info.id


def _digest(job: jobs.TrainingJob, output_dict: _Artifacts) -> str:
    """Returns what an execution that is tried again has in common with no other one."""
    inputs = {key: [item.uri for item in items] for key, items in job.input_dict.items()}
    outputs = {key: [item.uri for item in items] for key, items in output_dict.items()}
    given = [inputs, outputs, job.exec_properties, job.code]
    return cache_key.digest(json.dumps(given, sort_keys=True, default=str).encode())
