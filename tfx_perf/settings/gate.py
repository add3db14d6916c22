"""The settings of PerfEvaluator."""

from collections.abc import Collection
from typing import Annotated

import pydantic

from tfx_perf import metrics
from tfx_perf.settings import following, gate_defaults
from tfx_perf.settings.base import Count, LocalPath, NotNegative, Positive, PositiveInt, Section
from tfx_perf.settings.policy import Policy
from tfx_perf.settings.rule import Rule
from tfx_perf.settings.validation import SettingError

_COST = "cost_per_million_examples"


class GateSettings(Section):
    """PerfEvaluator.

    Example:
        >>> GateSettings(rules={"mfu_ratio": Rule(min=0.3), "train_loss": None})

    Attributes:
        rules: metric key to rule; `evaluation/NAME` is a metric of Evaluator's output. A rule
            stands beside the default one for its metric (`Rule.beside`), null takes it away. A
            looser margin for the step time loosens the default rules of what follows from it.
        use_defaults: whether the rules of `tfx_perf.settings.gate_defaults` hold where `rules`
            says nothing.
        policy: what each verdict does.
        baseline_runs: a run is compared with so many of the last comparable blessed runs.
        kept_runs: how many blessed runs of each environment the ledger keeps; the anchor is
            sought in them.
        baseline_uri: folder that the ledger is also read from and written to, a local path
            or a URL such as `gs://bucket/folder`; for where there is no ML Metadata.
        fail_pipeline: whether a refusal fails the component, and the pipeline with it. By
            default the pipeline goes on and Pusher does not push.
        false_alarm_rate: probability that a run that is no worse is called a regression, over
            all rules together.
        minimum_steps: steps below which no figure that is taken over steps is valid.
        escalate_seconds: where a run would be refused for its step time alone, train it and a
            blessed one in turns on this host, for at most so long; 0: do not.
        anchor: run that the budgets count from; None: the best level that runs have held.
        price_per_hour: of a machine that trains, in any currency; it gives the cost of a million
            examples.
    """

    rules: dict[str, Rule | None] = pydantic.Field(default_factory=dict)
    use_defaults: bool = True
    policy: Policy = Policy()
    baseline_runs: PositiveInt = 8
    kept_runs: PositiveInt = 100
    baseline_uri: LocalPath | None = None
    fail_pipeline: bool = False
    false_alarm_rate: Annotated[float, pydantic.Field(gt=0, lt=0.5)] = 0.02
    minimum_steps: Count = 50
    escalate_seconds: NotNegative = 0.0
    anchor: str | None = None
    price_per_hour: Positive | None = None

    @pydantic.field_validator("rules")
    @classmethod
    def _can_fire(cls, rules: dict[str, Rule | None]) -> dict[str, Rule | None]:
        for key, rule in rules.items():
            if rule is not None:
                rule.check_for(key)
            elif not (_has_default(key) or metrics.is_unread(key)):
                raise SettingError(
                    f"a rule for {key!r}, which has no default one that null takes away", key
                )
        return rules

    @pydantic.model_validator(mode="after")
    def _is_coherent(self) -> "GateSettings":
        for key, own in self.rules.items():
            has_default = self.use_defaults and _has_default(key)
            rule = own.beside(_default(key)) if own and has_default else own
            if rule and rule.lacks:
                raise SettingError(f"a rule for {key!r} with {rule.lacks}", "rules", key)
        if self.rules.get(_COST) and self.price_per_hour is None:
            raise SettingError(
                f"price_per_hour beside a rule for {_COST!r}",
                "rules",
                _COST,
                remedy="Set gate.price_per_hour.",
            )
        if self.kept_runs < self.baseline_runs:
            raise ValueError("kept_runs not below baseline_runs")
        return self

    def unruled(self, evaluation: Collection[str]) -> tuple[str, ...]:
        """Returns the keys of metrics that no rule asks for, as nobody can read their names.

        Args:
            evaluation: as for `rules_for`.
        """
        keys = (metrics.EVALUATION_PREFIX + name for name in sorted(evaluation))
        return tuple(
            key
            for key in keys
            if self.use_defaults and metrics.is_unread(key) and key not in self.rules
        )

    def rules_for(self, evaluation: Collection[str]) -> dict[str, Rule]:
        """Returns the rules that hold for a run, by metric key.

        Args:
            evaluation: names of the metrics in Evaluator's output, without prefix. Those whose
                names say which way is better have a default rule.
        """
        rules: dict[str, Rule | None] = {}
        if self.use_defaults:
            rules |= gate_defaults.RULES
            keys = (metrics.EVALUATION_PREFIX + name for name in evaluation)
            rules |= {key: gate_defaults.EVALUATION_RULE for key in keys if _has_default(key)}
            if self.price_per_hour is None:
                del rules[_COST]
            leader = self.rules.get(following.LEADER)
            if leader is not None:
                rules |= {
                    key: following.loosened(key, rule, leader=leader)
                    for key, rule in rules.items()
                    if rule and key in following.FOLLOWERS
                }
        for key, rule in self.rules.items():
            default = rules.get(key)
            rules[key] = rule.beside(default) if rule and default else rule
        return {key: rule for key, rule in rules.items() if rule is not None}


def _default(key: str) -> Rule:
    is_evaluation = metrics.is_evaluation(key)
    return gate_defaults.EVALUATION_RULE if is_evaluation else gate_defaults.RULES[key]


def _has_default(key: str) -> bool:
    if metrics.is_evaluation(key):
        return metrics.lookup(key).direction is not metrics.Direction.NONE
    return key in gate_defaults.RULES
