"""One rule of the gate: the requirements on one metric."""

from typing import Any, Literal

import pydantic

from tfx_perf.config.base import NotNegative, Positive, Section
from tfx_perf.core import errors, metrics
from tfx_perf.core.metrics import Direction
from tfx_perf.core.validation import SettingError

REGRESSION_TOLERANCES = 4.0
"""The default of `max_regression`, in tolerances."""

# Fields of a rule that have no effect without a tolerance.
_OF_TOLERANCE = ("max_regression", "expected_std", "min_baseline")
# Tolerances from this fraction on (1000%) are taken for a mistake: they were meant in percent.
_LARGEST_SHARE = 10.0
_DIRECTIONS = {"lower": Direction.LOWER, "higher": Direction.HIGHER}

PRIMARY = "step_time_seconds"
DERIVED = {key: exponent for key, exponent in metrics.STEP_TIME_EXPONENTS.items() if key != PRIMARY}
"""Figures that follow from the step time: the same measurement in other units."""


class Rule(Section):
    """Limits for a metric, for its change, or both.

    Changes are relative to the mean of the last comparable blessed runs, for the worse only;
    the metric's direction says which way that is.

    Example:
        >>> Rule(max=0.5), Rule(tolerance=0.05), Rule(tolerance=0.05, max=0.5, advisory=True)

    Attributes:
        min: refuse below, in the metric's unit.
        max: refuse above, in the metric's unit.
        tolerance: a change for the worse that is too small to matter, relative to the baseline:
            0.03 is 3%. Not given: the default rule's; null drops that.
        max_regression: the largest change for the worse that may remain undetected, in one run or
            as the sum of many; None: four tolerances, but two as the sum of many in losses and
            evaluation metrics.
        expected_std: relative standard deviation between runs to expect before runs have shown it;
            None: 1 to 5%, by the kind of metric. `tfx-perf calibrate` shows yours.
        min_baseline: changes are relative to this, in the metric's unit, where the baseline is
            smaller: a share that rises from 0.1% to 0.2% has not doubled.
        direction: `lower` or `higher` is better, for an evaluation metric; None: as its name says.
        advisory: report only, never refuse.
        optional: do not refuse a run that has not recorded the figure.
    """

    min: float | None = None
    max: float | None = None
    tolerance: NotNegative | None = None
    max_regression: Positive | None = None
    expected_std: Positive | None = None
    min_baseline: NotNegative = 0.0
    direction: Literal["lower", "higher"] | None = None
    advisory: bool = False
    optional: bool = False

    @pydantic.model_validator(mode="after")
    def _is_coherent(self) -> "Rule":
        if not self.model_fields_set:
            raise ValueError("a rule with min, max or tolerance")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min not above max, so that something can pass")
        if self.max_regression is not None and self.max_regression < self.smallest_change:
            raise ValueError("a max_regression that is not below the tolerance")
        return self

    @pydantic.model_serializer(mode="wrap")
    def _only_given_fields(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Fields that were not given come from the default rule, also after a round trip as JSON.
        return {key: value for key, value in handler(self).items() if key in self.model_fields_set}

    @property
    def lacks(self) -> str:
        """The fields that a default rule must add; empty if the rule is complete."""
        if self.min is None and self.max is None and self.tolerance is None:
            return "min, max or tolerance"
        if self.tolerance is None and any(getattr(self, name) for name in _OF_TOLERANCE):
            return f"a tolerance, to which {', '.join(_OF_TOLERANCE)} belong"
        return ""

    @property
    def smallest_change(self) -> float:
        """The tolerance; 0 if there is none, so that any change counts."""
        return self.tolerance or 0.0

    @property
    def largest_change(self) -> float:
        """`max_regression`, or its default."""
        if self.max_regression is None:
            return REGRESSION_TOLERANCES * self.smallest_change
        return self.max_regression

    def beside(self, default: "Rule") -> "Rule":
        """Returns the rule, with fields that were not given taken from the metric's default rule.

        A limit keeps the default's tolerance, unless that is advisory: it must not start to refuse.
        """
        given = self.model_fields_set
        fields = {name: getattr(self, name) for name in given}
        if "optional" not in given:
            fields["optional"] = default.optional
        if default.advisory and not self.advisory and not self.lacks:
            return Rule(**fields)
        if "advisory" not in given:
            fields["advisory"] = default.advisory
        if "tolerance" not in given:
            fields |= default.model_dump(include={"tolerance", *_OF_TOLERANCE} - given)
        elif self.tolerance is not None and "min_baseline" not in given:
            fields["min_baseline"] = default.min_baseline
        fields |= default.model_dump(include={"min", "max"} - given)
        return Rule(**fields)

    def loosened(self, key: str, *, leader: "Rule") -> "Rule":
        """Returns the default rule of a derived metric, as loose as the user's for the step time.

        Tolerating a slower step means tolerating the lower rate and the higher cost that follow. A
        rule without tolerance, or stricter than the default, changes nothing.
        """
        if leader.tolerance is None or self.tolerance is None:
            return self
        tolerance, max_regression = (
            abs((1 + slower) ** DERIVED[key] - 1)
            for slower in (leader.tolerance, leader.largest_change)
        )
        return self.model_copy(
            update={
                "tolerance": max(self.tolerance, tolerance),
                "max_regression": max(self.largest_change, max_regression),
                "expected_std": self.expected_std or leader.expected_std,
                "advisory": self.advisory or leader.advisory,
            }
        )

    def direction_of(self, key: str) -> Direction:
        """Returns the direction in which the metric gets better."""
        return _DIRECTIONS[self.direction] if self.direction else metrics.lookup(key).direction

    def worse_sign(self, key: str) -> float:
        """Returns 1 if a higher figure is worse, else -1."""
        return 1.0 if self.direction_of(key) is Direction.LOWER else -1.0

    def check_for(self, key: str) -> None:
        """Raises SettingError if the metric is unknown, or nothing could break the rule."""
        try:
            metric = metrics.lookup(key)
        except KeyError as error:
            raise SettingError(
                f"a metric of docs/metrics.md, not {key!r}",
                key,
                remedy=errors.did_you_mean(metrics.new_key(key), metrics.CATALOGUE),
            ) from error
        if self.direction and not metrics.is_evaluation(key):
            raise SettingError(
                f"no direction for {key!r}, whose is fixed: {metric.direction.value}", key
            )
        lowest, highest = metric.possible
        can_be = f"{key!r} is from {lowest:g} to {highest:g}"
        if self.max is not None and self.max < lowest:
            raise SettingError(f"a max that a run can pass: {can_be}", key)
        if self.min is not None and self.min > highest:
            raise SettingError(f"a min that a run can pass: {can_be}", key)
        lowest, highest = metric.bounds
        if self.max is not None and self.max >= highest:
            raise SettingError(f"a max that can fire: {key!r} is never above {highest:g}", key)
        if self.min is not None and self.min <= lowest:
            raise SettingError(f"a min that can fire: {key!r} is never below {lowest:g}", key)
        if self.tolerance is None:
            return
        if self.direction_of(key) is Direction.NONE:
            raise SettingError(
                f"no tolerance for {key!r}, which has no better direction and cannot regress",
                key,
                remedy="Give the rule a direction." if metrics.is_evaluation(key) else "",
            )
        if self.direction_of(key) is Direction.HIGHER and lowest == 0 and self.tolerance >= 1:
            raise SettingError(f"a tolerance below 1: {key!r} cannot fall by more than 100%", key)
        for name, share in (("tolerance", self.tolerance), ("max_regression", self.max_regression)):
            if not metric.is_deterministic and share and share >= _LARGEST_SHARE:
                raise SettingError(
                    f"a {name} below {_LARGEST_SHARE:g} (it is a fraction: {share:g} means "
                    f"{100 * share:,.0f}%)",
                    key,
                    remedy=f"{share:g}% is {share / 100:g}.",
                )
        if self.tolerance == 0 and not metric.is_deterministic:
            raise SettingError(f"a tolerance above 0 for {key!r}, which varies between runs", key)
