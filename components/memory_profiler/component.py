"""The MemoryProfiler component."""

from tfx import types as tfx_types
from tfx.dsl.components.base import executor_spec
from tfx.types import component_spec, standard_component_specs
from typing_extensions import Unpack

from tfx_perf.components import latest, training_component, types
from tfx_perf.components.memory_profiler import executor


class MemoryProfilerSpec(component_spec.ComponentSpec):
    """Inputs, outputs and execution properties of MemoryProfiler."""

    PARAMETERS = {**training_component.PARAMETERS, **training_component.PLAN_PARAMETERS}
    INPUTS = {
        **standard_component_specs.TrainerSpec.INPUTS,
        "input_plan": component_spec.ChannelParameter(type=types.InputPlan, optional=True),
    }
    OUTPUTS = {"memory_profile": component_spec.ChannelParameter(type=types.MemoryProfile)}


class MemoryProfiler(training_component.TrainingComponent):
    """Shows where the memory of a training step goes, before the training.

    Takes Trainer's arguments. The module's `run_fn` runs unmodified up to its `Model.fit`, in a
    separate process. There the step is profiled at several batch sizes: the allocator's peak over
    a few real steps without XLA, and XLA's buffer assignment for the step, which is only compiled.
    Weights, optimizer state, gradients and inputs are listed separately. The growth of the process
    tells how large a batch may be; near the memory limit, steps are trained in further processes.

    Failures in these processes never fail the pipeline: a batch size that is killed, hangs or
    raises has a row with the reason. If there is no figure at all (`run_fn` does not reach `fit`,
    or the smallest batch does not fit), `unmeasured.json` replaces the profile.

    Outputs:
        memory_profile: `MemoryProfile` with `profile.json`, `report.html`, logs, the figures at
            the module's batch size as custom properties, and the custom properties `keras`,
            `device` and `batch_sizes` (how each ended, e.g. `16: measured; 32: killed`); or with
            `unmeasured.json` and the custom property `not_measured`.

    Example:
        ```python
        memory_profiler = MemoryProfiler(
            examples=transform.outputs["transformed_examples"],
            transform_graph=transform.outputs["transform_graph"],
            schema=schema_gen.outputs["schema"],
            run_fn="models.keras_model.model.run_fn",
            train_args=tfx.proto.TrainArgs(num_steps=1000),
            config={"memory": {"batch_sizes": [256, 1024]}},
        )
        ```
    """

    SPEC_CLASS = MemoryProfilerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)
    DRIVER_CLASS = latest.FailedBeforeDriver
    SECTIONS = ("memory", "training.precision")

    def __init__(
        self,
        *,
        input_plan: tfx_types.BaseChannel | None = None,
        **given: Unpack[training_component.TrainingArguments],
    ) -> None:
        """Constructs the component.

        Args:
            input_plan: `InputPlan` of InputTuner, to read the examples as the training will.
            **given: see `training_component.TrainingArguments`. The section `memory` of `config`
                applies.

        Raises:
            UserError: not exactly one of `run_fn` and `module_file` is given, or `config` is a
                mapping with a wrong key or value.
        """
        super().__init__(
            given,
            input_plan=input_plan,
            input_plan_source=training_component.plan_source(input_plan),
            memory_profile=tfx_types.Channel(type=types.MemoryProfile),
        )
