"""One training run as the gate sees it."""

import functools
from collections.abc import Mapping

import pydantic

from tfx_perf import metrics, records
from tfx_perf.gate import environments


class Run(records.Record):
    """A run's figures and what they were measured on.

    Attributes:
        run_id: names the run in its pipeline, e.g. TFX's pipeline run id.
        pipeline: its name; empty where nobody knows it, as in ledgers of earlier versions.
        node: the gate's in the pipeline; of two trainers each has a gate of its own.
        artifact: names the training itself, which several runs take from cache; None if
            nobody knows it.
        time: when the gate saw the run, with its time zone.
        environment: the fingerprint; see `tfx_perf.cache_key`, and `environments.completed`.
        figures: catalogue key to value. Only finite ones can be held, so that a NaN can
            never pass a comparison; what is missing here is what could not be measured.
        evaluation: metrics of Evaluator's output over all examples, by their names there.
        evaluation_gains: what the candidate's metrics are above those of Evaluator's baseline model
            on the same examples; empty if it had none.
        step_times: seconds per step after warm-up, evenly spaced quantiles from the smallest
            to the largest; empty if they are not known.
        plan: of the training, in words; empty where nobody knows it, as in ledgers of earlier
            versions.
        budget_lack: what the plan's trials had no room for; see `PlanChoice.budget_lack`.
        source: folder of the training's figures, where it can be found again.
        loss: name of the loss that the model was compiled with, where its value is that of nothing
            else; empty where nobody knows it.
        not_finite: keys of the training's figures that were NaN or infinite.
        unmeasured: why the training has no figures; empty if it has.
        is_of_script: whether a script has trained, not a pipeline: it has no components, and what a
            person can do about it is another thing.
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
    budget_lack: str = ""
    source: str | None = None
    loss: str = ""
    not_finite: tuple[str, ...] = ()
    unmeasured: str = ""
    is_of_script: bool = False

    @pydantic.field_validator("environment")
    @classmethod
    def _completed(cls, environment: dict[str, str]) -> dict[str, str]:
        return environments.completed(environment)

    @property
    def is_resumed(self) -> bool:
        """Whether the training had been interrupted, so that figures are those of its last part."""
        return self.figure("resumed_step") is not None

    @functools.cached_property
    def impossible(self) -> Mapping[str, tuple[float, float]]:
        """Figures that no measurement can come to: key to the range that was to be expected."""
        keys = [*self.figures, *(metrics.EVALUATION_PREFIX + name for name in self.evaluation)]
        expected = {key: self._possible(key) for key in keys if self._is_known(key)}
        found = {}
        for key, (lowest, highest) in expected.items():
            value = self.figure(key)
            if value is not None and not lowest <= value <= highest:
                found[key] = lowest, highest
        return found

    def _possible(self, key: str) -> tuple[float, float]:
        metric = metrics.lookup(key)
        if metric.unit == "loss" and self.loss:
            return metrics.lookup(metrics.EVALUATION_PREFIX + self.loss).possible
        return metric.possible

    @staticmethod
    def _is_known(key: str) -> bool:
        return metrics.is_evaluation(key) or key in metrics.CATALOGUE  # not of another version

    @property
    def trained_steps(self) -> float | None:
        """Steps that the model was trained for, also before an interruption; None if unknown."""
        steps = self.figure("train_step_count")
        return None if steps is None else steps + (self.figure("resumed_step") or 0.0)

    @property
    def key(self) -> tuple[str, str, str]:
        """What no two runs of any pipelines have in common."""
        return self.pipeline, self.node, self.run_id

    def is_of_node_of(self, other: "Run") -> bool:
        """Whether both are of one node of one pipeline, as far as is known."""
        if "" in (self.pipeline, other.pipeline):
            return True
        return (self.pipeline, self.node) == (other.pipeline, other.node)

    def is_training_of(self, other: "Run") -> bool:
        """Whether both are the same run, or about the same training, at one gate."""
        is_cached = self.artifact is not None and self.artifact == other.artifact
        return self.key == other.key or (is_cached and self.is_of_node_of(other))

    def gain(self, key: str) -> float | None:
        """Returns what a figure is above that of Evaluator's baseline model on the same examples.

        Args:
            key: see `tfx_perf.metrics.lookup`.
        """
        if not metrics.is_evaluation(key):
            return None
        return self.evaluation_gains.get(key.removeprefix(metrics.EVALUATION_PREFIX))

    def figure(self, key: str) -> float | None:
        """Returns a figure, None if the run does not have it.

        Args:
            key: see `tfx_perf.metrics.lookup`.
        """
        if metrics.is_evaluation(key):
            return self.evaluation.get(key.removeprefix(metrics.EVALUATION_PREFIX))
        return self.figures.get(key)
