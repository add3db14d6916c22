"""The OptimizedTrainer component."""

from tfx import types as tfx_types
from tfx.dsl.components.base import executor_spec
from tfx.types import component_spec, standard_artifacts, standard_component_specs
from typing_extensions import Unpack

from tfx_perf.components import training_component, types
from tfx_perf.components.optimized_trainer import executor


class OptimizedTrainerSpec(standard_component_specs.TrainerSpec):
    """TFX's TrainerSpec, with the plan as an input and the figures as an output."""

    PARAMETERS = {
        **training_component.PARAMETERS,
        **training_component.PLAN_PARAMETERS,
        "run_label": component_spec.ExecutionParameter(type=str, optional=True),
    }
    INPUTS = {
        **standard_component_specs.TrainerSpec.INPUTS,
        "input_plan": component_spec.ChannelParameter(type=types.InputPlan, optional=True),
        "previous_metrics": component_spec.ChannelParameter(type=types.PerfMetrics, optional=True),
    }
    OUTPUTS = {
        **standard_component_specs.TrainerSpec.OUTPUTS,
        "perf_metrics": component_spec.ChannelParameter(type=types.PerfMetrics),
    }


class OptimizedTrainer(training_component.TrainingComponent):
    """Trains the user's unmodified module with the fastest measured plan.

    Takes the arguments of TFX's Trainer and runs the same `run_fn` in a separate process. Before
    the first step of its first `Model.fit`, short trials compare Keras' `fit` with several steps
    per call and with XLA, on the real model and data. The fastest plan that produces Keras'
    weights then trains. A trial that crashes or runs out of memory is skipped; if no trial can be
    run, Keras' `fit` trains. Code that cannot be sped up (a custom loop, a generator, eager mode)
    trains as it would with Trainer, and the record says why.

    With the setting `distribution.strategy`, `run_fn` runs in the scope of that `tf.distribute`
    strategy; `model_parallel` spreads the layers of its model over several devices during `fit`.
    With `distribution.workers` or `distribution.job`, workers on this machine or on Kubernetes
    train instead and run the trials together; with parameter servers there are no trials.
    Settings left open with `auto` are measured first.

    With `previous_metrics`, trials that would give the same result as in an earlier run are not
    repeated, and training starts at once.

    Outputs:
        model: `Model`, as the user's code saves it.
        model_run: `ModelRun`, e.g. TensorBoard logs.
        perf_metrics: `PerfMetrics` with `metrics.json`, `report.html`, `job.json`, logs, the
            figures as custom properties and the custom property `plan`; also `reused_from`, if
            the plan comes from an earlier run.

    Example:
        ```python
        examples = transform.outputs["transformed_examples"]
        trainer = OptimizedTrainer(
            run_fn="models.keras_model.model.run_fn",
            examples=examples,
            transform_graph=transform.outputs["transform_graph"],
            schema=schema_gen.outputs["schema"],
            input_plan=input_tuner.outputs["input_plan"],
            previous_metrics=latest_metrics(examples).outputs["previous_metrics"],
            train_args=tfx.proto.TrainArgs(num_steps=1000),
            eval_args=tfx.proto.EvalArgs(num_steps=150),
        )
        ```
    """

    SPEC_CLASS = OptimizedTrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)
    SECTIONS = ("training", "compilation", "schedule", "distribution", "monitoring")

    def __init__(
        self,
        *,
        input_plan: tfx_types.BaseChannel | None = None,
        previous_metrics: tfx_types.BaseChannel | None = None,
        run_label: str | None = None,
        **given: Unpack[training_component.TrainingArguments],
    ) -> None:
        """Constructs the component.

        Args:
            input_plan: `InputPlan` from InputTuner; None reads the examples as TFX does.
            previous_metrics: `PerfMetrics` of earlier runs, from `latest_metrics`. A plan found
                with the same code, schema, input plan, settings, host and versions is reused, if
                `fit` gets the same model and batches.
            run_label: a new label trains again although nothing has changed.
            **given: see `training_component.TrainingArguments`. The sections `training`,
                `compilation`, `schedule`, `distribution` and `monitoring` of `config` apply.

        Raises:
            UserError: not exactly one of `run_fn` and `module_file` is given, or `config` is a
                mapping with a wrong key or value.
        """
        super().__init__(
            given,
            input_plan=input_plan,
            input_plan_source=training_component.plan_source(input_plan),
            previous_metrics=previous_metrics,
            run_label=run_label,
            model=tfx_types.Channel(type=standard_artifacts.Model),
            model_run=tfx_types.Channel(type=standard_artifacts.ModelRun),
            perf_metrics=tfx_types.Channel(type=types.PerfMetrics),
        )
