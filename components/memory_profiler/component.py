"""The MemoryProfiler component."""

from collections.abc import Mapping
from typing import Any

from tfx import types as tfx_types
from tfx.dsl.components.base import executor_spec
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_component_specs

from tfx_perf.components import latest, training_component, types
from tfx_perf.components.memory_profiler import executor
from tfx_perf.config import PerfConfig


class MemoryProfilerSpec(component_spec.ComponentSpec):
    """Inputs, outputs and execution properties of MemoryProfiler."""

    PARAMETERS = {
        **training_component.PARAMETERS,
        **training_component.PLAN_PARAMETERS,
    }
    INPUTS = {
        **standard_component_specs.TrainerSpec.INPUTS,
        "input_plan": component_spec.ChannelParameter(type=types.InputPlan, optional=True),
    }
    OUTPUTS = {"memory_profile": component_spec.ChannelParameter(type=types.MemoryProfile)}


class MemoryProfiler(training_component.TrainingComponent):
    """Tells where the memory of a training step goes, before the training.

    Takes what Trainer takes. The module's `run_fn` runs unmodified up to its `Model.fit`, in a
    process of its own. There the step is profiled at several batch sizes: the allocator's peak over
    a few real steps without XLA, and XLA's buffer assignment for the step, which is only compiled.
    Weights, optimizer state, gradients and inputs are told apart. Then the first steps are trained
    in a process for each of up to three batch sizes, which tells how large a batch may be.

    What happens in these processes never fails the pipeline: a batch size that is killed, hangs
    or raises has a row with the reason. If there is no figure at all (`run_fn` does not come to
    `fit`, the smallest batch does not fit), `unmeasured.json` takes the place of the profile.

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
        examples: tfx_types.BaseChannel,
        run_fn: str | data_types.RuntimeParameter | None = None,
        module_file: str | data_types.RuntimeParameter | None = None,
        transform_graph: tfx_types.BaseChannel | None = None,
        schema: tfx_types.BaseChannel | None = None,
        base_model: tfx_types.BaseChannel | None = None,
        hyperparameters: tfx_types.BaseChannel | None = None,
        input_plan: tfx_types.BaseChannel | None = None,
        train_args: trainer_pb2.TrainArgs | data_types.RuntimeParameter | None = None,
        train_steps: int | data_types.RuntimeParameter | None = None,
        eval_args: trainer_pb2.EvalArgs | data_types.RuntimeParameter | None = None,
        custom_config: Mapping[str, Any] | data_types.RuntimeParameter | None = None,
        config: PerfConfig | Mapping[str, Any] | None = None,
    ) -> None:
        """Constructs the component.

        Args:
            examples: `Examples` to train on, as for Trainer.
            run_fn: dotted path of the training function, e.g. `models.model.run_fn`. If its
                package is on this machine, a digest of it is among the properties, so that TFX's
                cache notices an edit of the code.
            module_file: path of a module that defines `run_fn`; packaged as Trainer does.
            transform_graph: `TransformGraph`, if the module reads it.
            schema: `Schema`, if the module reads it.
            base_model: `Model` to start from, if the module does.
            hyperparameters: `HyperParameters`, if the module reads them.
            input_plan: `InputPlan` of InputTuner, to read the examples as the training will.
            train_args: splits and number of steps, as for Trainer.
            train_steps: instead of the steps in `train_args`; may be a RuntimeParameter.
            eval_args: splits and number of steps, as for Trainer.
            custom_config: handed to the module, as for Trainer.
            config: its section `memory` counts; None for the defaults.

        Raises:
            UserError: not exactly one of `run_fn` and `module_file` is given, or `config` is a
                mapping with a wrong key or value.
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
            config=config,
            train_args=train_args,
            train_steps=train_steps,
            eval_args=eval_args,
            module_file=module_file,
            run_fn=run_fn,
            custom_config=custom_config,
            memory_profile=tfx_types.Channel(type=types.MemoryProfile),
        )
