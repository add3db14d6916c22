"""The choice for a training, where one is known before it begins: of a run before, or kept."""

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio
from tfx.types import artifact, artifact_utils, standard_component_specs
from tfx.utils import io_utils

from tfx_perf.components import artifacts, trainer_args
from tfx_perf.components import examples as examples_lib
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import cache_key, errors, formatting, records, storage
from tfx_perf.input.record import TuningRecord
from tfx_perf.training import record
from tfx_perf.training.optimizations.onednn import OneDnn
from tfx_perf.training.optimizations.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.optimizations.precision import Precision
from tfx_perf.training.optimizations.steps_per_call import CALL_SECONDS
from tfx_perf.training.trials import kept_choice, plan_key
from tfx_perf.training.trials.choice import PlanChoice, StrategyChoice, TrialRecord
from tfx_perf.training.trials.processes import Comparison
from tfx_perf.training.trials.worth import Worth

_FORM_OF_EXAMPLES = ("sparse_feature", "weighted_feature", "tensor_representation_group")
_FORM_OF_FEATURE = {"name", "type", "shape", "value_count", "value_counts", "struct_domain"}

_RUNS = 20  # among which one may be that of one replica

# To tell whether a training is too short for trials: the cheapest plan, and what saves most; and
# what a small model takes to trace.
_PLANS = TrainingPlan(steps_per_call=10), TrainingPlan(steps_per_call=10, xla_call=True)
_COMPILE_SECONDS = 0.3
_TURNS_SECONDS = 3.0  # which the first needs none of

_LOGGER = logging.getLogger(__name__)

_Artifacts = dict[str, list[artifact.Artifact]]
Runs = Iterator[tuple[str, record.TrainingRecord]]


class KnownPlan(records.Record):
    """OptimizedTrainer's knowledge of the plan, also for workers that start later.

    With an empty `key` there are to be no trials; without a `choice`, they may find one.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.known_plan/1"
    GONE: ClassVar[frozenset[str]] = frozenset({"spent_seconds"})

    key: dict[str, str] = {}
    choice: PlanChoice | None = None
    previous_plan: TrainingPlan | None = None
    comparison: Comparison | None = None

    def within(self, comparison: Comparison) -> "KnownPlan":
        """Returns what is known in the precision that a comparison chose."""
        previous = self.previous_plan
        if previous is not None:  # trials have no other precision to try
            previous = previous.only(lambda each: each.name != Precision.name)
        return self.model_copy(update={"previous_plan": previous, "comparison": comparison})

    def held_against(self, choice: PlanChoice) -> PlanChoice:
        """Returns the workers' choice, with what is known of the precision that they compute in."""
        return choice if self.comparison is None else self.comparison.held_against(choice)


def key_of(job: TrainingJob) -> dict[str, str]:
    """Returns the key of the choice for a training."""
    tuned = trainer_args.input_plan(job.input_dict)
    return plan_key.plan_key(
        job.settings,
        code=job.code,
        hyperparameters=_hyperparameters(job.input_dict),
        data=_schema_digest(job.input_dict),
        input_candidate=tuned.chosen if tuned else "",
        worker_count=job.settings.distribution.worker_count,
    )


def known_plan(job: TrainingJob, key: dict[str, str]) -> KnownPlan:
    """Returns what is known of the plan, also from an interruption, before anything is tried."""
    runs = runs_before(job)
    choice = kept_choice.kept_plan(job.checkpoint_folder, key)
    if choice is None:
        choice = find(runs, key, planned_runs=job.planned_runs)
    before = previous_plan(runs)
    tuned = trainer_args.input_plan(job.input_dict)
    if choice is None and before is None and tuned and tuned.training_digest == job.code:
        choice = too_short(tuned, planned_runs=job.planned_runs)
    return KnownPlan(
        key=key,
        choice=choice and choice.model_copy(update={"key": key}),
        previous_plan=before,
    )


def too_short(tuned: TuningRecord, *, planned_runs: int) -> PlanChoice | None:
    """Returns the choice of plain `fit` where even starting trials costs more than they may save.

    InputTuner has measured a step of the very training code and knows how many there are; None
    where that is open.
    """
    rate = tuned.diagnosis and tuned.diagnosis.train_examples_per_second
    if not rate or tuned.trained_example_count is None:
        return None
    # Which it has timed without what Python takes for a call.
    step_seconds = tuned.batch_size / rate.value + CALL_SECONDS
    step_count = round(tuned.trained_example_count / tuned.batch_size)
    worth = Worth(step_count=step_count, planned_runs=planned_runs)
    prospects = [
        worth.prospect(
            plan,
            best=PLAIN_FIT,
            step_seconds=step_seconds,
            compile_seconds=_COMPILE_SECONDS,
            beside_seconds=turns_seconds,
        )
        for plan, turns_seconds in zip(_PLANS, (0.0, _TURNS_SECONDS), strict=True)
    ]
    if any(prospect.is_worth_it for prospect in prospects):
        return None
    took = formatting.format_seconds(step_count * step_seconds)
    cost = formatting.format_seconds(min(prospect.cost_seconds for prospect in prospects))
    counts = [prospect.runs_needed(beside_seconds=0.0) for prospect in prospects]
    return PlanChoice(
        plan=PLAIN_FIT,
        plan_reason=(
            f"the training is too short for trials: its steps take about {took} with plain fit, "
            f"and trials would take {cost} at least"
        ),
        is_settled=True,
        enough_runs=min(filter(None, counts), default=None),
    )


def runs_before(job: TrainingJob) -> Sequence[artifact.Artifact]:
    """Returns the `PerfMetrics` of runs before; unreadable records are skipped later."""
    return job.input_dict.get("previous_metrics") or ()


def _newest(runs: Sequence[artifact.Artifact]) -> Runs:
    return artifacts.newest_first(runs, record.TrainingRecord, file_name=record.FILE_NAME)


def find(
    runs: Sequence[artifact.Artifact], key: Mapping[str, str], *, planned_runs: int
) -> PlanChoice | None:
    """Returns the newest choice with the same key, if it is final; logs why others are not."""
    for uri, found in _newest(runs):
        changes = cache_key.differences(found.key, key)
        if changes:
            _LOGGER.info("The plan in %s is not used again: %s.", uri, cache_key.describe(changes))
            continue
        choice = found.choice_for_another_run(uri, planned_runs=planned_runs)
        # Where it is not used, older ones with this key would not do: it would have used them.
        is_used = "used again" if choice else "not used again: trials may find a better"
        _LOGGER.info("The plan in %s is %s.", uri, is_used)
        return choice
    return None


def previous_plan(runs: Sequence[artifact.Artifact]) -> TrainingPlan | None:
    """Returns the last run's plan, which is always worth trying; None for plain `fit`.

    OneDNN is left out: whoever starts the processes of the trials adds it to their plans.
    """
    last = next((found.plan for _, found in _newest(runs)), None)
    if last is None or last.is_plain_fit:
        return None
    return last.only(lambda each: each.name != OneDnn.name)


def strategy(runs: Sequence[artifact.Artifact], key: Mapping[str, str]) -> StrategyChoice | None:
    """Returns the newest measured strategy with the same key, whatever plan trials may find."""
    found = (each.strategy for _, each in _newest(runs))
    measured = (each for each in found if each is not None and each.speedup is not None)
    return next((each for each in measured if key and each.key == key), None)


def lost_turns(
    runs: Sequence[artifact.Artifact], key: Mapping[str, str], plans: Collection[TrainingPlan]
) -> tuple[TrialRecord, ...]:
    """Returns the failed trial of each plan in the newest run with the key.

    The code would fail again. None are returned if one of the plans may be worth another try.
    """
    last = next((each for _, each in _newest(runs) if each.key == key), None)
    lost = [
        trial
        for trial in (() if last is None else last.trials)
        if trial.plan in plans and trial.status == "failed" and not trial.may_pass
    ]
    return tuple(lost) if len(lost) == len(plans) else ()


def of_node(target: artifact.Artifact) -> Runs:
    """Yields the places and records of the node's last runs, the newest first.

    TFX has a folder for each execution of a node, named by its number. Unlike `latest_metrics`,
    this includes runs on the same examples.
    """
    own = storage.path(target.uri)
    if not own.name.isdecimal():
        return
    try:
        beside = [int(each.name) for each in own.parent.iterdir() if each.name.isdecimal()]
    except Exception as error:  # whatever a store raises: the model is trained
        _LOGGER.warning("Runs before are not looked at: %s", errors.in_one_line(error))
        return
    for number in sorted((each for each in beside if each < int(own.name)), reverse=True)[:_RUNS]:
        file = own.parent / str(number) / record.FILE_NAME
        with contextlib.suppress(errors.UserError):  # unmeasured, or of another version
            yield str(file.parent), record.TrainingRecord.read(file)


def _schema_digest(input_dict: _Artifacts) -> str:
    """Returns a digest of the form of the examples, empty if they have no schema."""
    try:
        schema = examples_lib.read_schema(input_dict)
    except errors.UserError:  # a module that knows its data needs none
        schema = None
    if schema is None:
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
    """Returns a digest of the Tuner's result, empty if there is none."""
    items = input_dict.get(standard_component_specs.HYPERPARAMETERS_KEY)
    if not items:
        return ""
    path = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(items))
    with fileio.open(path, "rb") as file:
        return cache_key.digest(file.read())
