"""The settings of PerfEvaluator."""

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

import pydantic

from tfx_perf.config.base import Count, LocalPath, NotNegative, Positive, PositiveInt, Section
from tfx_perf.config.rule import DERIVED, PRIMARY, Rule
from tfx_perf.core import metrics
from tfx_perf.core.validation import SettingError

_COST = "cost_per_million_examples"

# The rules that a demanding team would want on its own machine: a training step that is slower or
# larger, or whose result is worse, is refused as soon as that can be told from noise. Figures that
# depend on the length of a training or on whether trials were repeated are reported and never
# refuse. Only the step's time and memory, which every run has, are required.
DEFAULT_RULES: Mapping[str, Rule] = {
    "step_time_seconds": Rule(tolerance=0.03),
    "examples_per_second": Rule(tolerance=0.03, optional=True),
    # From the same time as the rate; on a CPU, every run measures the peak that it is a share of.
    "mfu_ratio": Rule(tolerance=0.03, optional=True, advisory=True),
    "cost_per_million_examples": Rule(tolerance=0.03),
    # Below 2 GiB, 100 MiB: libraries that TensorFlow loads once may come before the training or
    # during it, and XLA's compiler takes about 50 MiB if another plan is chosen.
    "training_memory_bytes": Rule(tolerance=0.05, min_baseline=2**31),
    # Beyond this, the next larger batch or a fragmented allocator ends the training.
    "peak_memory_share_ratio": Rule(max=0.85, optional=True),
    # A leak ends a training some day, whatever its peak is now.
    "memory_leak": Rule(max=0.0, optional=True),
    # Relative to a share of 20%: two percentage points more.
    "input_wait_ratio": Rule(tolerance=0.1, min_baseline=0.2, optional=True),
    # Relative to a share of 20% each: two percentage points more, and four.
    "communication_share_ratio": Rule(tolerance=0.1, min_baseline=0.2, optional=True),
    "load_imbalance_ratio": Rule(tolerance=0.2, min_baseline=0.2, optional=True, advisory=True),
    "trace_count": Rule(tolerance=0.0, max_regression=1.0, optional=True),
    "oom_count": Rule(tolerance=0.0, max_regression=1.0, optional=True),
    "train_loss": Rule(tolerance=0.05, min_baseline=0.1, optional=True),
    "validation_loss": Rule(tolerance=0.05, min_baseline=0.1, optional=True),
    # Sampled for the whole machine, so it varies more.
    "energy_per_example_joules": Rule(tolerance=0.1, expected_std=0.03, optional=True),
    # A plan that cannot be compiled is not used: worth a look, but no reason to refuse.
    "xla_compile_success_ratio": Rule(min=0.9, optional=True, advisory=True),
    # Trials come before the first step and are made only when something has changed.
    "time_to_first_step_seconds": Rule(
        tolerance=0.2, min_baseline=5.0, optional=True, advisory=True
    ),
}

DEFAULT_EVALUATION_RULE = Rule(tolerance=0.02, optional=True)
"""The rule for a metric of Evaluator's output whose name says which way is better."""

_Answer = Literal["bless", "refuse"]
_AnswerByQuality = Literal["bless", "refuse", "if quality holds"]


class Policy(Section):
    """Whether each verdict lets the run through: `bless` or `refuse`.

    A figure beyond a limit is always refused.

    Attributes:
        regression: a change for the worse beyond tolerance and noise.
        inconclusive: noise leaves a change beyond `max_regression` open. `bless` while you watch a
            new gate.
        invalid: a figure is missing, not finite, impossible, or rests on too few steps.
        incomparable: no blessed run has the same environment and about the same size. `if quality
            holds`: bless if a loss or an evaluation metric passed and no figure is worse by more
            than twice `max_regression` and what the environment explains.
        no_baseline: no blessed run has the figure. `refuse` makes a person bless the first run.
    """

    regression: _Answer = "refuse"
    inconclusive: _Answer = "refuse"
    invalid: _Answer = "refuse"
    incomparable: _AnswerByQuality = "if quality holds"
    no_baseline: _Answer = "bless"


class GateSettings(Section):
    """PerfEvaluator: rules, verdicts, the ledger.

    Example:
        >>> GateSettings(rules={"mfu_ratio": Rule(min=0.3), "train_loss": None})

    Attributes:
        rules: metric key to rule, beside the default rules; `evaluation/NAME` is a metric of
            Evaluator, and null drops a default rule. A looser tolerance for the step time loosens
            the rules of what follows from it.
        use_defaults: whether the default rules hold.
        policy: what each verdict does.
        baseline_runs: a run is compared with this many of the last comparable blessed runs.
        ledger_size: number of blessed runs of each environment that the ledger keeps, beside the
            first five.
        baseline_uri: folder for the ledger beside ML Metadata: a path, `gs://` or `s3://`. Needed
            on Kubeflow.
        fail_pipeline: whether a refusal fails the component, and the pipeline with it. By default
            the pipeline continues and Pusher does not push.
        false_alarm_rate: probability that an unchanged run is called a regression, over all rules
            together.
        minimum_steps: fewer steps make figures over steps invalid.
        rerun_seconds: limit for training a run again in turns with a blessed one before a doubtful
            step time decides; 0: never. 300 suits a busy machine. Not on Kubeflow.
        reference_run: run that cumulative drift counts from; None: the best level that five runs in
            a row have held. Name a run after a slowdown that you meant and blessed.
        price_per_hour: price of a machine that trains, in any currency; gives the cost of a million
            examples.
    """

    rules: dict[str, Rule | None] = pydantic.Field(default_factory=dict)
    use_defaults: bool = True
    policy: Policy = Policy()
    baseline_runs: PositiveInt = 8
    ledger_size: PositiveInt = 100
    baseline_uri: LocalPath | None = None
    fail_pipeline: bool = False
    false_alarm_rate: Annotated[float, pydantic.Field(gt=0, lt=0.5)] = 0.02
    minimum_steps: Count = 50
    rerun_seconds: NotNegative = 90.0
    reference_run: str | None = None
    price_per_hour: Positive | None = None

    @pydantic.field_validator("rules")
    @classmethod
    def _can_fire(cls, rules: dict[str, Rule | None]) -> dict[str, Rule | None]:
        for key, rule in rules.items():
            if rule is not None:
                rule.check_for(key)
            elif not (_default(key) or metrics.is_unread(key)):
                raise SettingError(
                    f"a rule for {key!r}, which has no default one that null takes away", key
                )
        return rules

    @pydantic.model_validator(mode="after")
    def _is_coherent(self) -> "GateSettings":
        for key, given in self.rules.items():
            default = _default(key) if self.use_defaults else None
            rule = given.beside(default) if given and default else given
            if rule and rule.lacks:
                raise SettingError(f"a rule for {key!r} with {rule.lacks}", "rules", key)
        if self.rules.get(_COST) and self.price_per_hour is None:
            raise SettingError(
                f"price_per_hour beside a rule for {_COST!r}",
                "rules",
                _COST,
                remedy="Set gate.price_per_hour.",
            )
        if self.ledger_size < self.baseline_runs:
            raise ValueError("ledger_size not below baseline_runs")
        return self

    def unruled(self, evaluation: Collection[str]) -> tuple[str, ...]:
        """Returns the metrics without a rule, whose names do not say which way is better."""
        if not self.use_defaults:
            return ()
        keys = (metrics.EVALUATION_PREFIX + name for name in sorted(evaluation))
        return tuple(key for key in keys if metrics.is_unread(key) and key not in self.rules)

    def rules_for(self, evaluation: Collection[str]) -> dict[str, Rule]:
        """Returns the rules for a run by metric key, given names of Evaluator's metrics.

        Those whose names say which way is better have a default rule.
        """
        rules: dict[str, Rule | None] = {}
        if self.use_defaults:
            rules |= DEFAULT_RULES
            keys = (metrics.EVALUATION_PREFIX + name for name in evaluation)
            rules |= {key: default for key in keys if (default := _default(key))}
            if self.price_per_hour is None:
                del rules[_COST]
            leader = self.rules.get(PRIMARY)
            if leader is not None:
                rules |= {
                    key: rule.loosened(key, leader=leader)
                    for key, rule in rules.items()
                    if rule and key in DERIVED
                }
        for key, rule in self.rules.items():
            default = rules.get(key)
            rules[key] = rule.beside(default) if rule and default else rule
        return {key: rule for key, rule in rules.items() if rule is not None}


def _default(key: str) -> Rule | None:
    if not metrics.is_evaluation(key):
        return DEFAULT_RULES.get(key)
    has_direction = metrics.lookup(key).direction is not metrics.Direction.NONE
    return DEFAULT_EVALUATION_RULE if has_direction else None
