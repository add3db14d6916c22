"""The OptimizedTrainer component."""

from collections.abc import Mapping
from typing import Any

from tfx import types as tfx_types
from tfx.dsl.components.base import executor_spec
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs

from tfx_perf.components import training_component, types
from tfx_perf.components.optimized_trainer import executor
from tfx_perf.config import PerfConfig


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
        "previous_metrics": component_spec.ChannelParameter(
            type=types.PerfMetrics, optional=True
        ),
    }
    OUTPUTS = {
        **standard_component_specs.TrainerSpec.OUTPUTS,
        "perf_metrics": component_spec.ChannelParameter(type=types.PerfMetrics),
    }


class OptimizedTrainer(training_component.TrainingComponent):
    """Trains the user's unmodified module with the fastest plan that was measured.

    Takes what TFX's Trainer takes, and runs the same `run_fn`, in a process of its own. Before the
    first step of its first `Model.fit`, short trials compare plain `fit` with several steps per
    call and with XLA, on the real model and data. The fastest plan that comes to plain `fit`'s
    weights then trains. A trial that crashes or eats the memory is left out; if none can be made,
    plain `fit` trains. Code that cannot be taken over (a custom loop, NumPy input, eager mode)
    trains as it would have, and the record says why.

    With the setting `distribution.strategy`, `run_fn` is run in the scope of that `tf.distribute`
    strategy; with `model_parallel` the layers of its model are on several devices while it fits.
    With `distribution.workers` or `distribution.job`, workers on this machine or on Kubernetes
    train in its place and make the trials together; with parameter servers there are no trials.
    Whatever the settings leave open with `auto` is measured before.

    With `previous_metrics`, trials that would find the same as those of a run before are not
    repeated, and training starts at once.

    Outputs:
        model: `Model`, as the user's code saves it.
        model_run: `ModelRun`, e.g. TensorBoard logs.
        perf_metrics: `PerfMetrics` with `metrics.json`, `report.html`, `job.json`, logs, the
            figures as custom properties and the custom property `plan`; also `reused_from`, if
            the plan is that of a run before.

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
        examples: tfx_types.BaseChannel,
        transform_graph: tfx_types.BaseChannel | None = None,
        schema: tfx_types.BaseChannel | None = None,
        base_model: tfx_types.BaseChannel | None = None,
        hyperparameters: tfx_types.BaseChannel | None = None,
        input_plan: tfx_types.BaseChannel | None = None,
        previous_metrics: tfx_types.BaseChannel | None = None,
        module_file: str | data_types.RuntimeParameter | None = None,
        run_fn: str | data_types.RuntimeParameter | None = None,
        train_args: trainer_pb2.TrainArgs | data_types.RuntimeParameter | None = None,
        train_steps: int | data_types.RuntimeParameter | None = None,
        eval_args: trainer_pb2.EvalArgs | data_types.RuntimeParameter | None = None,
        custom_config: Mapping[str, Any] | data_types.RuntimeParameter | None = None,
        run_label: str | None = None,
        config: PerfConfig | Mapping[str, Any] | None = None,
    ) -> None:
        """Constructs the component.

        Args:
            examples: `Examples` to train on, raw or transformed.
            transform_graph: `TransformGraph`, if the examples are transformed.
            schema: `Schema` of the examples.
            base_model: `Model` to start from.
            hyperparameters: `HyperParameters` from a Tuner.
            input_plan: `InputPlan` from InputTuner; None reads as TFX does.
            previous_metrics: `PerfMetrics` of runs before, from `latest_metrics`. A plan found with
                the same code, schema, input plan, settings, host and versions is used again, if
                `fit` gets the same model and batches.
            module_file: path of the module that defines `run_fn`; TFX packages it.
            run_fn: import path of the function, instead of `module_file`. If its package is on
                this machine, a digest of it is among the properties, so that TFX's cache notices
                an edit of the code.
            train_args: splits and steps to train; by default the split `train`.
            train_steps: instead of the steps in `train_args`; may be a RuntimeParameter.
            eval_args: splits and steps to evaluate; by default the split `eval`.
            custom_config: passed on to `run_fn`.
            run_label: a new label trains anew though nothing has changed.
            config: its sections `training`, `compilation`, `schedule`, `distribution` and
                `monitoring` count; None for the defaults.

        Raises:
            UserError: not exactly one of `module_file` and `run_fn` is given, or `config` has
                a wrong key or value.
        """
        training_component.check_one_module(module_file=module_file, run_fn=run_fn)
        super().__init__(
            examples=examples,
            transform_graph=transform_graph,
            schema=schema,
            base_model=base_model,
            hyperparameters=hyperparameters,
            input_plan=input_plan,
            input_plan_source=training_component.plan_source(input_plan),
            previous_metrics=previous_metrics,
            run_label=run_label,
            module_file=module_file,
            run_fn=run_fn,
            train_args=train_args,
            train_steps=train_steps,
            eval_args=eval_args,
            custom_config=custom_config,
            config=config,
            model=tfx_types.Channel(type=standard_artifacts.Model),
            model_run=tfx_types.Channel(type=standard_artifacts.ModelRun),
            perf_metrics=tfx_types.Channel(type=types.PerfMetrics),
        )
