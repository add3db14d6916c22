"""One training run as the gate sees it."""

import pydantic

from tfx_perf import metrics, records


class Run(records.Record):
    """A run's figures and what they were measured on.

    Attributes:
        run_id: names the run, e.g. TFX's pipeline run id.
        time: when the gate saw the run, with its time zone.
        environment: the fingerprint; see `tfx_perf.fingerprint`.
        figures: catalogue key to value. Only finite ones can be held, so that a NaN can
            never pass a comparison; what is missing here is what could not be measured.
        evaluation: metrics of Evaluator's output over all examples, by their names there.
        step_times: seconds per step after warm-up, evenly spaced quantiles from the smallest
            to the largest; empty if they are not known.
        source: folder of the training's figures, where it can be found again.
    """

    run_id: str
    time: pydantic.AwareDatetime
    environment: dict[str, str]
    figures: dict[str, pydantic.FiniteFloat]
    evaluation: dict[str, pydantic.FiniteFloat] = pydantic.Field(default_factory=dict)
    step_times: tuple[pydantic.FiniteFloat, ...] = ()
    source: str | None = None

    def figure(self, key: str) -> float | None:
        """Returns a figure, None if the run does not have it.

        Args:
            key: see `tfx_perf.metrics.lookup`.
        """
        if metrics.is_evaluation(key):
            return self.evaluation.get(key.removeprefix(metrics.EVALUATION_PREFIX))
        return self.figures.get(key)
