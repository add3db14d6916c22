"""The InputTuner component."""

from collections.abc import Mapping
from typing import Any

from tfx import types as tfx_types
from tfx.dsl.components.base import executor_spec
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_artifacts, standard_component_specs

from tfx_perf.components import latest, training_component, types
from tfx_perf.components.input_tuner import executor
from tfx_perf.config import PerfConfig


class InputTunerSpec(component_spec.ComponentSpec):
    """Inputs, outputs and execution properties of InputTuner."""

    PARAMETERS = {
        **training_component.PARAMETERS,
        "split": component_spec.ExecutionParameter(type=str),
        "label_key": component_spec.ExecutionParameter(type=str, optional=True),
    }
    INPUTS = {
        **standard_component_specs.TrainerSpec.INPUTS,
        "statistics": component_spec.ChannelParameter(
            type=standard_artifacts.ExampleStatistics, optional=True
        ),
        "previous_plans": component_spec.ChannelParameter(type=types.InputPlan, optional=True),
    }
    OUTPUTS = {"input_plan": component_spec.ChannelParameter(type=types.InputPlan)}


class InputTuner(training_component.TrainingComponent):
    """Finds the fastest way to read the examples, and proves it against TFXIO's default.

    Each candidate must yield the same element spec and the same examples as TFXIO's dataset
    factory, keep to the memory budget, and be faster in interleaved measurements; otherwise
    the default stays. OptimizedTrainer applies the plan through `fn_args.data_accessor`, so
    the user's `_input_fn` stays as it is.

    With the training code (`run_fn` or `module_file`, as for Trainer), batch size, label and the
    other options are those of the code, and candidates are compared on its own training step: the
    code runs unmodified up to its `Model.fit`. If that is impossible, the input is measured alone
    and the plan says why.

    All of it happens in a process of its own. If that crashes, the default stays.

    Outputs:
        input_plan: `InputPlan` with `plan.json`, `report.html`, `tuning.log`, the figures as
            custom properties and the custom property `chosen_candidate`; also `reused_from`, if
            it is a plan of a run before.

    Example:
        ```python
        examples = transform.outputs["transformed_examples"]
        input_tuner = InputTuner(
            examples=examples,
            transform_graph=transform.outputs["transform_graph"],
            run_fn="models.keras_model.model.run_fn",
            train_args=tfx.proto.TrainArgs(num_steps=1000),
            previous_plans=latest_plans(examples).outputs["previous_plans"],
            config={"input": {"time_budget_seconds": 30}},
        )
        ```
    """

    SPEC_CLASS = InputTunerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)
    DRIVER_CLASS = latest.FailedBeforeDriver
    SECTIONS = ("input", "schedule", "training.precision")

    def __init__(
        self,
        *,
        examples: tfx_types.BaseChannel,
        schema: tfx_types.BaseChannel | None = None,
        transform_graph: tfx_types.BaseChannel | None = None,
        statistics: tfx_types.BaseChannel | None = None,
        split: str = "train",
        label_key: str | None = None,
        run_fn: str | data_types.RuntimeParameter | None = None,
        module_file: str | data_types.RuntimeParameter | None = None,
        train_args: trainer_pb2.TrainArgs | data_types.RuntimeParameter | None = None,
        train_steps: int | data_types.RuntimeParameter | None = None,
        eval_args: trainer_pb2.EvalArgs | data_types.RuntimeParameter | None = None,
        custom_config: Mapping[str, Any] | data_types.RuntimeParameter | None = None,
        base_model: tfx_types.BaseChannel | None = None,
        hyperparameters: tfx_types.BaseChannel | None = None,
        previous_plans: tfx_types.BaseChannel | None = None,
        config: PerfConfig | Mapping[str, Any] | None = None,
    ) -> None:
        """Constructs the component.

        Args:
            examples: `Examples` as the training code reads them.
            schema: `Schema` of raw examples; not needed with `transform_graph`.
            transform_graph: `TransformGraph`, if the examples are transformed.
            statistics: `ExampleStatistics`, for the number of examples in large data.
            split: the split to tune on.
            label_key: feature that the training code splits off as the label; not needed if the
                code is given.
            run_fn: dotted path of the training function, e.g. `models.model.run_fn`. If its
                package is on this machine, a digest of it is among the properties, so that TFX's
                cache notices an edit of the code.
            module_file: path of a module that defines `run_fn`; packaged as Trainer does.
            train_args: splits and steps to train, as for Trainer.
            train_steps: instead of the steps in `train_args`; may be a RuntimeParameter.
            eval_args: splits and steps to evaluate, as for Trainer.
            custom_config: handed to the training code, as for Trainer.
            base_model: `Model` to start from, if the training code does.
            hyperparameters: `HyperParameters`, if the training code reads them.
            previous_plans: `InputPlan`s of runs before, from `latest_plans`. A plan found on the
                same data, code, settings, host and versions is published again.
            config: its sections `input` and `schedule` count; None for the defaults.

        Raises:
            UserError: both `run_fn` and `module_file` are given, or `config` is a mapping with a
                wrong key or value.
        """
        if run_fn or module_file:
            training_component.check_one_module(module_file=module_file, run_fn=run_fn)
        super().__init__(
            examples=examples,
            schema=schema,
            transform_graph=transform_graph,
            statistics=statistics,
            base_model=base_model,
            hyperparameters=hyperparameters,
            previous_plans=previous_plans,
            config=config,
            split=split,
            label_key=label_key,
            train_args=train_args,
            train_steps=train_steps,
            eval_args=eval_args,
            module_file=module_file,
            run_fn=run_fn,
            custom_config=custom_config,
            input_plan=tfx_types.Channel(type=types.InputPlan),
        )
