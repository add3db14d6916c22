"""The choice known before a training begins: from an earlier run, or kept by an interrupted one."""

import contextlib
import logging
from collections.abc import Iterator

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio
from tfx.types import artifact, artifact_utils, standard_component_specs
from tfx.utils import io_utils

from tfx_perf.components import artifacts, trainer_args
from tfx_perf.components import examples as examples_lib
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import cache_key, errors, storage
from tfx_perf.input.record import TuningRecord
from tfx_perf.training import record
from tfx_perf.training.speedups.steps_per_execution import CALL_SECONDS
from tfx_perf.training.tuning import plan_key
from tfx_perf.training.tuning.choice import TRIALS_OFF, PlanChoice, plain
from tfx_perf.training.tuning.cost_model import CostModel
from tfx_perf.training.tuning.earlier import Earlier, KnownPlan, Runs

_FORM_OF_EXAMPLES = ("sparse_feature", "weighted_feature", "tensor_representation_group")
_FORM_OF_FEATURE = {"name", "type", "shape", "value_count", "value_counts", "struct_domain"}

_RUNS = 20  # the most earlier runs to search for one on a single replica

_LOGGER = logging.getLogger(__name__)

_Artifacts = dict[str, list[artifact.Artifact]]


def key_of(job: TrainingJob) -> dict[str, str]:
    """Returns the key of the choice for a training; it is empty if there are to be no trials."""
    if not job.settings.training.tuning_seconds:
        return {}
    tuned = trainer_args.input_plan(job.input_dict)
    return plan_key.plan_key(
        job.settings,
        code=job.code,
        hyperparameters=_hyperparameters(job.input_dict),
        data=_schema_digest(job.input_dict),
        input_candidate=tuned.chosen if tuned else "",
        worker_count=job.settings.distribution.worker_count,
    )


def earlier(job: TrainingJob, key: dict[str, str]) -> Earlier:
    """Returns the choices kept by an interrupted run, and those of earlier runs."""
    runs = job.input_dict.get("previous_metrics") or ()

    def newest() -> Runs:
        return artifacts.newest_first(runs, record.TrainingRecord, file_name=record.FILE_NAME)

    return Earlier(key, folder=job.checkpoint_folder, runs=newest)


def known_plan(job: TrainingJob, before: Earlier) -> KnownPlan:
    """Returns what is known about the plan before any trial."""
    if not before.key:
        return KnownPlan(choice=plain(TRIALS_OFF))
    choice, previous_plan = before.plan(expected_runs=job.expected_runs), before.previous_plan
    tuned = trainer_args.input_plan(job.input_dict)
    if choice is None and previous_plan is None and tuned and tuned.training_digest == job.code:
        choice = too_short(tuned, expected_runs=job.expected_runs)
    key = dict(before.key)
    return KnownPlan(
        key=key,
        choice=choice and choice.model_copy(update={"key": key}),
        previous_plan=previous_plan,
    )


def too_short(tuned: TuningRecord, *, expected_runs: int) -> PlanChoice | None:
    """Returns the choice of Keras' `fit` if merely starting trials costs more than they may save.

    InputTuner has timed a step of the same training code and knows the number of steps; None if
    it does not, or if trials may pay off.
    """
    rate = tuned.diagnosis and tuned.diagnosis.train_examples_per_second
    if not rate or tuned.trained_example_count is None:
        return None
    # InputTuner's timing leaves out the time that Python takes per call.
    step_seconds = tuned.batch_size / rate.value + CALL_SECONDS
    step_count = round(tuned.trained_example_count / tuned.batch_size)
    cost_model = CostModel(step_count=step_count, expected_runs=expected_runs)
    return cost_model.too_short(step_seconds=step_seconds)


def of_node(target: artifact.Artifact) -> Iterator[tuple[str, record.TrainingRecord]]:
    """Yields the folders and records of the node's last runs, the newest first.

    TFX has a folder for each execution of a node, named by its number. Unlike `latest_metrics`,
    this includes runs on the same examples.
    """
    here = storage.path(target.uri)
    if not here.name.isdecimal():
        return
    try:
        beside = [int(each.name) for each in here.parent.iterdir() if each.name.isdecimal()]
    except Exception as error:  # whatever a store raises must not cost the trained model
        _LOGGER.warning("Earlier runs cannot be read: %s", errors.in_one_line(error))
        return
    for number in sorted((each for each in beside if each < int(here.name)), reverse=True)[:_RUNS]:
        file = here.parent / str(number) / record.FILE_NAME
        with contextlib.suppress(errors.UserError):  # unmeasured, or of another version
            yield str(file.parent), record.TrainingRecord.read(file)


def _schema_digest(input_dict: _Artifacts) -> str:
    schema = examples_lib.read_schema(input_dict)
    if schema is None:  # a module that knows its data needs none
        return ""
    return cache_key.digest(_form(schema).SerializeToString(deterministic=True))


def _form(schema: schema_pb2.Schema) -> schema_pb2.Schema:
    """Returns the part of a schema that says how examples are parsed, not what values they have."""
    form = schema_pb2.Schema(feature=schema.feature)
    for name in _FORM_OF_EXAMPLES:
        getattr(form, name).MergeFrom(getattr(schema, name))
    for feature in form.feature:
        is_always_there = feature.presence.min_fraction == 1
        for field, _ in feature.ListFields():
            if field.name not in _FORM_OF_FEATURE:
                feature.ClearField(field.name)
        if is_always_there:
            feature.presence.min_fraction = 1
    return form


def _hyperparameters(input_dict: _Artifacts) -> str:
    items = input_dict.get(standard_component_specs.HYPERPARAMETERS_KEY)
    if not items:
        return ""
    path = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(items))
    with fileio.open(path, "rb") as file:
        return cache_key.digest(file.read())
