"""The choice for a training, where one is known before it begins."""

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio
from tfx.types import artifact, artifact_utils, standard_component_specs
from tfx.utils import io_utils

from tfx_perf import cache_key, errors
from tfx_perf.components.examples import sources
from tfx_perf.components.optimized_trainer import previous, too_short
from tfx_perf.components.training_job import trainer_args
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials import kept_choice, plan_key
from tfx_perf.training.trials.choice import PlanChoice

_FORM_OF_EXAMPLES = ("sparse_feature", "weighted_feature", "tensor_representation_group")
_FORM_OF_FEATURE = {"name", "type", "shape", "value_count", "value_counts", "struct_domain"}

_Artifacts = dict[str, list[artifact.Artifact]]


def key_of(job: TrainingJob) -> dict[str, str]:
    """Returns the key of the choice for a training; see `plan_key`.

    Raises:
        UserError: the input plan or the schema cannot be read.
    """
    tuned = trainer_args.input_plan(job.input_dict)
    return plan_key.plan_key(
        job.settings,
        code=job.code,
        hyperparameters=_hyperparameters(job.input_dict),
        data=_schema_digest(job.input_dict),
        input_candidate=tuned.chosen if tuned else "",
        worker_count=job.settings.distribution.worker_count,
    )


def known_choice(
    job: TrainingJob,
    key: dict[str, str],
    *,
    previous_plan: TrainingPlan | None,
    checkpoint_folder: str | None,
) -> PlanChoice | None:
    """Returns the choice that is known without trials; None if it takes trials to know it.

    Args:
        job: the training, with plain `fit`.
        key: of the choice.
        previous_plan: what `previous_plan` returns.
        checkpoint_folder: where a training that was interrupted has left its choice; None if
            nothing outlives the process.
    """
    choice = kept_choice.kept_plan(checkpoint_folder, key)
    if choice is not None:
        return choice
    choice = previous.find(
        job.input_dict.get("previous_metrics") or (), key, planned_runs=job.planned_runs
    )
    tuned = trainer_args.input_plan(job.input_dict)
    may_be_too_short = choice is None and previous_plan is None
    if may_be_too_short and tuned is not None and tuned.training_digest == job.code:
        choice = too_short.choice(tuned, planned_runs=job.planned_runs)
    return choice and choice.model_copy(update={"key": key})


def previous_plan(job: TrainingJob) -> TrainingPlan | None:
    """Returns what the last run trained with, which is worth trying whatever that costs."""
    return previous.plan(job.input_dict.get("previous_metrics") or ())


def _schema_digest(input_dict: _Artifacts) -> str:
    """Returns a digest of the form of the examples, empty if they have no schema."""
    try:
        schema = sources.read_schema(
            transform_graph=input_dict.get("transform_graph"), schema=input_dict.get("schema")
        )
    except errors.UserError:  # a module that knows its data needs none
        return ""
    return cache_key.digest(_form(schema).SerializeToString(deterministic=True))


def _form(schema: schema_pb2.Schema) -> schema_pb2.Schema:
    """Returns what of a schema says how examples are parsed; the rest follows their values."""
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
    """Returns a digest of what the Tuner found, empty if there is none."""
    items = input_dict.get(standard_component_specs.HYPERPARAMETERS_KEY)
    if not items:
        return ""
    path = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(items))
    with fileio.open(path, "rb") as file:
        return cache_key.digest(file.read())
