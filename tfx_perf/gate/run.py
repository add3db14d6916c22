"""One training run as the gate sees it: its figures and the environment they were measured in."""

import datetime
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic

from tfx_perf.config.gate import GateSettings
from tfx_perf.core import cache_key, metrics, records
from tfx_perf.training.record import TrainingRecord

_EXAMPLES, _SECONDS_IN_HOUR = 1e6, 3600.0
_FORMER_NAMES = {"_DefaultDistributionStrategy": "one_device"}
_OF_ONE_REPLICA = {
    "", "one_device", "OneDeviceStrategy", "model_parallel", "ParameterServerStrategy"
}  # fmt: skip
_OF_WORKERS = "MultiWorkerMirroredStrategy"

CONDITIONS = {
    "code": "the code",
    "hyperparameters": "the hyperparameters",
    "data": "the data's schema",
    "input": "the input plan",
    "training": "settings under training",
    "compilation": "settings under compilation",
}
"""Parts of a plan's key that a user decides about, and their names in sentences."""

SIZE_FIELDS = "parameter_count", "flops_per_step"
"""Fields of an environment that say how large the model is."""

LARGEST_SIZE_RATIO = 1.25
"""Runs whose models differ by more are not compared."""


class Run(records.Record):
    """A run's figures and the environment of their measurement; unknown fields are empty.

    Attributes:
        run_id: names the run in its pipeline, e.g. TFX's pipeline run id.
        node: the gate's node in the pipeline; each of two trainers has its own gate.
        artifact: names the training itself, which several runs may take from cache.
        time: when the gate saw the run, with its time zone.
        environment: the fingerprint; see `tfx_perf.core.cache_key`, and `completed`.
        figures: catalogue key to value, finite ones only, so that a NaN can never pass a
            comparison; those that could not be measured are missing.
        evaluation: metrics of Evaluator's output over all examples, by their names there.
        evaluation_gains: the candidate's metrics less those of Evaluator's baseline model on the
            same examples; empty if it had none.
        step_times: seconds per step after warm-up, evenly spaced quantiles from the smallest
            to the largest.
        conditions: digests of what the training was given, by their names in `plan_key`.
        budget_lack: see `PlanChoice.budget_lack`.
        source: folder of the training's figures, where it can be found again.
        loss: name of the loss that the model was compiled with, if its value contains nothing else.
        not_finite: keys of the training's figures that were NaN or infinite.
        unmeasured: why the training has no figures; empty if it has.
        is_of_script: whether a script has trained: it has no components, so that advice differs.
    """

    run_id: str
    pipeline: str = ""
    node: str = ""
    artifact: str | None = None
    time: pydantic.AwareDatetime
    environment: dict[str, str]
    figures: dict[str, pydantic.FiniteFloat]
    evaluation: dict[str, pydantic.FiniteFloat] = pydantic.Field(default_factory=dict)
    evaluation_gains: dict[str, pydantic.FiniteFloat] = pydantic.Field(default_factory=dict)
    step_times: tuple[pydantic.FiniteFloat, ...] = ()
    plan: str = ""
    conditions: dict[str, str] = pydantic.Field(default_factory=dict)
    budget_lack: str = ""
    source: str | None = None
    loss: str = ""
    not_finite: tuple[str, ...] = ()
    unmeasured: str = ""
    is_of_script: bool = False

    @pydantic.field_validator("figures", mode="before")
    @classmethod
    def _rename_figures(cls, figures: Any) -> Any:
        return metrics.under_new_names(figures) if isinstance(figures, Mapping) else figures

    @pydantic.field_validator("environment")
    @classmethod
    def _complete(cls, environment: dict[str, str]) -> dict[str, str]:
        return completed(environment)

    @classmethod
    def of_training(
        cls,
        training: TrainingRecord | None,
        *,
        figures: Mapping[str, float | int | None],
        settings: GateSettings,
        **names: Any,
    ) -> "Run":
        """Returns the run to be judged, with its cost if the price of a machine is known."""
        figures = {**(training.figures() if training else {}), **figures}
        speed = figures.get("examples_per_second")
        if settings.price_per_hour is not None and speed:
            hours = _EXAMPLES / speed / _SECONDS_IN_HOUR
            hosts = training.host_count if training else 1
            figures["cost_per_million_examples"] = settings.price_per_hour * hosts * hours
        return cls(
            loss=training.loss if training else "",
            not_finite=tuple(
                key
                for key, value in figures.items()
                if value is not None and not math.isfinite(value)
            ),
            time=datetime.datetime.now(datetime.timezone.utc),
            environment=training.environment if training else {},
            figures=metrics.checked(figures),
            step_times=training.step_time_quantiles() if training else (),
            plan=training.trained_with if training else "",
            conditions={
                name: cache_key.digest(training.key[name].encode())
                for name in CONDITIONS
                if training and training.key.get(name)  # empty: not known
            },
            budget_lack=training.budget_lack if training else "",
            **names,
        )

    @property
    def is_resumed(self) -> bool:
        """Whether the training had been interrupted, so that figures are those of its last part."""
        return self.figure("resumed_step") is not None

    @property
    def known_figures(self) -> dict[str, float]:
        """All figures by key, except those that only another version knows."""
        known = {key: value for key, value in self.figures.items() if key in metrics.CATALOGUE}
        return known | {
            metrics.EVALUATION_PREFIX + name: value for name, value in self.evaluation.items()
        }

    @functools.cached_property
    def impossible(self) -> Mapping[str, tuple[float, float]]:
        """Figures that no measurement can reach: key to the expected range."""
        ranges = {}
        for key, value in self.known_figures.items():
            metric = metrics.lookup(key)
            if metric.unit == "loss" and self.loss:
                metric = metrics.lookup(metrics.EVALUATION_PREFIX + self.loss)
            lowest, highest = metric.possible
            if not lowest <= value <= highest:
                ranges[key] = lowest, highest
        return ranges

    @property
    def trained_steps(self) -> float | None:
        """Steps that the model was trained for, also before an interruption; None if unknown."""
        steps = self.figure("train_step_count")
        return None if steps is None else steps + (self.figure("resumed_step") or 0.0)

    @property
    def key(self) -> tuple[str, str, str]:
        """The identifier of the run among those of all pipelines."""
        return self.pipeline, self.node, self.run_id

    def shares_node_with(self, other: "Run") -> bool:
        """Whether both are of one node of one pipeline, as far as is known."""
        if "" in (self.pipeline, other.pipeline):
            return True
        return (self.pipeline, self.node) == (other.pipeline, other.node)

    def shares_training_with(self, other: "Run") -> bool:
        """Whether both are the same run, or judge the same training at one gate."""
        is_cached = self.artifact is not None and self.artifact == other.artifact
        return self.key == other.key or (is_cached and self.shares_node_with(other))

    def repeats(self, other: "Run") -> bool:
        """Whether a pipeline trained both with the same code, arguments and settings.

        A script's digest leaves out its arguments.
        """
        is_known = "code" in self.conditions and not self.is_of_script
        return is_known and self.conditions == other.conditions

    def figure(self, key: str) -> float | None:
        """Returns a figure by its key in `metrics.lookup`, None if the run does not have it."""
        if metrics.is_evaluation(key):
            return self.evaluation.get(key.removeprefix(metrics.EVALUATION_PREFIX))
        return self.figures.get(key)

    def gain(self, key: str) -> float | None:
        """Returns a figure less that of Evaluator's baseline model; None without one."""
        if not metrics.is_evaluation(key):
            return None
        return self.evaluation_gains.get(key.removeprefix(metrics.EVALUATION_PREFIX))


def completed(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment with the counts of workers and replicas, as far as they are certain.

    Records leave out counts of one; those of earlier versions leave out further counts.
    """
    if "strategy" not in environment:
        return dict(environment)
    strategy = _FORMER_NAMES.get(environment["strategy"], environment["strategy"])
    known = {
        "parameter_server_count": "0",
        "worker_count": "1",
        "host_count": "1",  # old records of several workers do not tell
        **environment,
        "strategy": strategy,
    }
    has_one_device = known.get("device_count") == "1"
    if strategy in _OF_ONE_REPLICA or (has_one_device and known["worker_count"] == "1"):
        known.setdefault("replica_count", "1")
    elif has_one_device and strategy == _OF_WORKERS:
        known.setdefault("replica_count", known["worker_count"])
    return known


def sizes(
    environment: Mapping[str, str], *, fields: Sequence[str] = SIZE_FIELDS
) -> dict[str, float]:
    """Returns the fields of an environment that are sizes."""
    numbers = {}
    for field in fields:
        try:
            number = float(environment[field])
        except (KeyError, ValueError):
            continue
        if number > 0 and math.isfinite(number):
            numbers[field] = number
    return numbers


def differences(
    a: Mapping[str, str], b: Mapping[str, str], *, size_ratio: float = LARGEST_SIZE_RATIO
) -> dict[str, tuple[str, str]]:
    """Returns the fields, with both values, that make two environments incomparable.

    About equal sizes are comparable: a vocabulary may grow every day.
    """
    size, other_size = sizes(a), sizes(b)
    alike = {
        field
        for field in size.keys() & other_size.keys()
        if abs(math.log(size[field] / other_size[field])) <= math.log(size_ratio)
    }
    changes = cache_key.differences(a, b)
    return {field: values for field, values in changes.items() if field not in alike}
