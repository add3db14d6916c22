"""The MemoryProfiler component."""

from collections.abc import Mapping
from typing import Any

from tfx import types as tfx_types
from tfx.components.util import udf_utils
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_component_specs

from tfx_perf.components import early_imports, latest, trainer_args, types
from tfx_perf.components.memory_profiler import executor
from tfx_perf.config import PerfConfig


class MemoryProfilerSpec(component_spec.ComponentSpec):
    """Inputs, outputs and execution properties of MemoryProfiler."""

    PARAMETERS = {
        **standard_component_specs.TrainerSpec.PARAMETERS,
        **trainer_args.CODE_PARAMETERS,
        **trainer_args.PLAN_PARAMETERS,
        "config": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {
        **standard_component_specs.TrainerSpec.INPUTS,
        "input_plan": component_spec.ChannelParameter(type=types.InputPlan, optional=True),
    }
    OUTPUTS = {"memory_profile": component_spec.ChannelParameter(type=types.MemoryProfile)}


class MemoryProfiler(base_component.BaseComponent):
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
        trainer_args.check_one_module(module_file=module_file, run_fn=run_fn)
        early_imports.begin(__name__, is_sure=False)
        super().__init__(
            MemoryProfilerSpec(
                examples=examples,
                transform_graph=transform_graph,
                schema=schema,
                base_model=base_model,
                hyperparameters=hyperparameters,
                input_plan=input_plan,
                input_plan_source=trainer_args.plan_source(input_plan),
                config=PerfConfig.of(config).to_json("memory", "training.precision"),
                train_args=train_args or trainer_pb2.TrainArgs(),
                train_steps=train_steps,
                eval_args=eval_args or trainer_pb2.EvalArgs(),
                module_file=module_file,
                run_fn=run_fn,
                source_digest=trainer_args.source_digest(run_fn),
                custom_config=trainer_args.custom_config_property(custom_config),
                memory_profile=tfx_types.Channel(type=types.MemoryProfile),
            )
        )
        if udf_utils.should_package_user_modules():
            udf_utils.add_user_module_dependency(
                self,
                standard_component_specs.MODULE_FILE_KEY,
                standard_component_specs.MODULE_PATH_KEY,
            )
