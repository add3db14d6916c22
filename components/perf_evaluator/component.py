"""The PerfEvaluator component."""

from collections.abc import Mapping
from typing import Any

from tfx import types as tfx_types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from tfx_perf.components import types
from tfx_perf.components.perf_evaluator import executor
from tfx_perf.config import PerfConfig


class PerfEvaluatorSpec(component_spec.ComponentSpec):
    """Inputs, outputs and execution properties of PerfEvaluator."""

    PARAMETERS = {"config": component_spec.ExecutionParameter(type=str)}
    INPUTS = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "perf_metrics": component_spec.ChannelParameter(type=types.PerfMetrics),
        "memory_profile": component_spec.ChannelParameter(type=types.MemoryProfile, optional=True),
        "input_plan": component_spec.ChannelParameter(type=types.InputPlan, optional=True),
        "model_evaluation": component_spec.ChannelParameter(
            type=standard_artifacts.ModelEvaluation, optional=True
        ),
        "ledger": component_spec.ChannelParameter(type=types.PerfLedger, optional=True),
        "infra_blessing": component_spec.ChannelParameter(
            type=standard_artifacts.InfraBlessing, optional=True
        ),
    }
    OUTPUTS = {
        "blessing": component_spec.ChannelParameter(type=standard_artifacts.InfraBlessing),
        "evaluation": component_spec.ChannelParameter(type=types.PerfEvaluation),
        "updated_ledger": component_spec.ChannelParameter(type=types.PerfLedger),
    }


class PerfEvaluator(base_component.BaseComponent):
    """Checks a run's figures against limits and against the last blessed runs.

    The decision is a standard `InfraBlessing`. Pass it to Pusher's `infra_blessing` beside
    Evaluator's `model_blessing`: Pusher pushes only models that both have blessed. A refusal
    is a result, not a failure: the pipeline continues and nothing is pushed. With
    `gate.fail_pipeline` it is a failure, whose error names a copy of the report.

    The blessed runs are kept in a `PerfLedger`, which each run resolves from earlier runs,
    extends if it is blessed, and passes on. The first run has none, so that only the absolute
    limits decide. Where there are no resolvers, as on Kubeflow, set `gate.baseline_uri`
    instead; with both, their merge is used.

    Outputs:
        blessing: `InfraBlessing` with TFX's custom properties `blessed` (1 or 0),
            `current_model`, `current_model_id`, `blessing_message`, `component_id`.
        evaluation: `PerfEvaluation`, the decision in full, as `report.html`, as Markdown
            for a pull request and as JUnit XML for a CI system.
        updated_ledger: `PerfLedger` for the next run.

    Example:
        ```python
        ledger = latest_ledger(trainer.outputs["perf_metrics"])
        gate = PerfEvaluator(
            model=trainer.outputs["model"],
            perf_metrics=trainer.outputs["perf_metrics"],
            memory_profile=profiler.outputs["memory_profile"],
            ledger=ledger.outputs["ledger"],
            model_evaluation=evaluator.outputs["evaluation"],
            config={"gate": {"rules": {"mfu_ratio": {"min": 0.1, "tolerance": 0.03}}}},
        )
        pusher = tfx.components.Pusher(
            model=trainer.outputs["model"],
            model_blessing=evaluator.outputs["blessing"],
            infra_blessing=gate.outputs["blessing"],
            push_destination=destination,
        )
        ```
    """

    SPEC_CLASS = PerfEvaluatorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        *,
        model: tfx_types.BaseChannel,
        perf_metrics: tfx_types.BaseChannel,
        memory_profile: tfx_types.BaseChannel | None = None,
        input_plan: tfx_types.BaseChannel | None = None,
        model_evaluation: tfx_types.BaseChannel | None = None,
        ledger: tfx_types.BaseChannel | None = None,
        infra_blessing: tfx_types.BaseChannel | None = None,
        config: PerfConfig | Mapping[str, Any] | None = None,
    ) -> None:
        """Constructs the component.

        Args:
            model: `Model` that the decision is about.
            perf_metrics: `PerfMetrics` of OptimizedTrainer.
            memory_profile: `MemoryProfile`, if rules check MemoryProfiler's figures.
            input_plan: `InputPlan`, if rules check InputTuner's figures.
            model_evaluation: `ModelEvaluation` of Evaluator, so that speed is not bought with
                quality: rules may then check its metrics over all examples.
            ledger: `PerfLedger` of earlier runs, from a Resolver; one, several or none.
            infra_blessing: `InfraBlessing` of InfraValidator, since Pusher takes only one: the
                blessing then requires both. The decision on the figures does not change.
            config: its section `gate` has the rules; None for the defaults.
        """
        super().__init__(
            PerfEvaluatorSpec(
                model=model,
                perf_metrics=perf_metrics,
                memory_profile=memory_profile,
                input_plan=input_plan,
                model_evaluation=model_evaluation,
                ledger=ledger,
                infra_blessing=infra_blessing,
                config=PerfConfig.of(config).to_json("gate"),
                blessing=tfx_types.Channel(type=standard_artifacts.InfraBlessing),
                evaluation=tfx_types.Channel(type=types.PerfEvaluation),
                updated_ledger=tfx_types.Channel(type=types.PerfLedger),
            )
        )
