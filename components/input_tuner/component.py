"""The InputTuner component."""

from tfx import types as tfx_types
from tfx.dsl.components.base import executor_spec
from tfx.types import component_spec, standard_artifacts, standard_component_specs
from typing_extensions import Unpack

from tfx_perf.components import latest, training_component, types
from tfx_perf.components.input_tuner import executor


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

    All of it happens in a separate process. If that crashes, the default stays.

    Outputs:
        input_plan: `InputPlan` with `plan.json`, `report.html`, `tuning.log`, the figures as
            custom properties and the custom property `chosen_candidate`; also `reused_from`, if
            it is the plan of an earlier run.

    Example:
        ```python
        examples = transform.outputs["transformed_examples"]
        input_tuner = InputTuner(
            examples=examples,
            transform_graph=transform.outputs["transform_graph"],
            run_fn="models.keras_model.model.run_fn",
            train_args=tfx.proto.TrainArgs(num_steps=1000),
            previous_plans=latest_plans(examples).outputs["previous_plans"],
            config={"input": {"tuning_seconds": 30}},
        )
        ```
    """

    SPEC_CLASS = InputTunerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)
    DRIVER_CLASS = latest.FailedBeforeDriver
    NEEDS_CODE = False
    SECTIONS = ("input", "schedule", "training.precision", "training.excluded_speedups")

    def __init__(
        self,
        *,
        statistics: tfx_types.BaseChannel | None = None,
        split: str = "train",
        label_key: str | None = None,
        previous_plans: tfx_types.BaseChannel | None = None,
        **given: Unpack[training_component.TrainingArguments],
    ) -> None:
        """Constructs the component.

        Args:
            statistics: `ExampleStatistics`, for the number of examples in large data.
            split: the split to tune on.
            label_key: feature that the training code splits off as the label; not needed if the
                code is given.
            previous_plans: `InputPlan`s of earlier runs, from `latest_plans`. A plan found on the
                same data, code, settings, host and versions is published again.
            **given: see `training_component.TrainingArguments`. Training code may be left out. The
                sections `input` and `schedule` of `config` apply.

        Raises:
            UserError: both `run_fn` and `module_file` are given, or `config` is a mapping with a
                wrong key or value.
        """
        super().__init__(
            given,
            statistics=statistics,
            split=split,
            label_key=label_key,
            previous_plans=previous_plans,
            input_plan=tfx_types.Channel(type=types.InputPlan),
        )
