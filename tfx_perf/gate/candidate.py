"""The run to be judged, made of what was measured of its training."""

import datetime
import math
from collections.abc import Mapping
from typing import Any

from tfx_perf import metrics
from tfx_perf.gate.run import Run
from tfx_perf.settings.gate import GateSettings
from tfx_perf.training.record import TrainingRecord

_EXAMPLES, _SECONDS_IN_HOUR = 1e6, 3600.0


def run_of(
    training: TrainingRecord | None,
    *,
    figures: Mapping[str, float | int | None],
    settings: GateSettings,
    **names: Any,
) -> Run:
    """Returns the run, with what it cost if the price of a machine is known.

    Args:
        training: None if it could not be measured.
        figures: from elsewhere than the training; catalogue key to value.
        settings: the gate's.
        **names: the other fields of `Run`.
    """
    figures = {**(training.figures() if training else {}), **figures}
    speed = figures.get("examples_per_second")
    if settings.price_per_hour is not None and speed:
        hours = _EXAMPLES / speed / _SECONDS_IN_HOUR
        hosts = training.host_count if training else 1
        figures["cost_per_million_examples"] = settings.price_per_hour * hosts * hours
    return Run(
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
        budget_lack=training.budget_lack if training else "",
        **names,
    )
