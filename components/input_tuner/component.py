"""The InputTuner component."""

from collections.abc import Mapping
from typing import Any

from tfx import types as tfx_types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from tfx_perf import config as perf_config
from tfx_perf.components import types
from tfx_perf.components.input_tuner import executor


class InputTunerSpec(component_spec.ComponentSpec):
    """Inputs, outputs and execution properties of InputTuner."""

    PARAMETERS = {
        "config": component_spec.ExecutionParameter(type=str),
        "split": component_spec.ExecutionParameter(type=str),
        "label_key": component_spec.ExecutionParameter(type=str, optional=True),
    }
    INPUTS = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "schema": component_spec.ChannelParameter(type=standard_artifacts.Schema, optional=True),
        "transform_graph": component_spec.ChannelParameter(
            type=standard_artifacts.TransformGraph, optional=True
        ),
        "statistics": component_spec.ChannelParameter(
            type=standard_artifacts.ExampleStatistics, optional=True
        ),
    }
    OUTPUTS = {"input_plan": component_spec.ChannelParameter(type=types.InputPlan)}


class InputTuner(base_component.BaseComponent):
    """Finds the fastest way to read the examples, and proves it against TFXIO's default.

    Each candidate (columns in RAM, a block reader, cached records) must yield the same
    element spec and the same examples as TFXIO's dataset factory, keep to the memory budget, and
    be faster in interleaved measurements; otherwise the default stays. OptimizedTrainer
    applies the plan through `fn_args.data_accessor`, so the user's `_input_fn` stays as it is.

    Outputs:
        input_plan: `InputPlan` with `plan.json`, `report.html`, the figures as custom
            properties and the custom property `chosen_candidate`.

    Example:
        ```python
        input_tuner = InputTuner(
            examples=transform.outputs["transformed_examples"],
            transform_graph=transform.outputs["transform_graph"],
            config={"input": {"time_budget_seconds": 30}},
        )
        ```
    """

    SPEC_CLASS = InputTunerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        *,
        examples: tfx_types.BaseChannel,
        schema: tfx_types.BaseChannel | None = None,
        transform_graph: tfx_types.BaseChannel | None = None,
        statistics: tfx_types.BaseChannel | None = None,
        split: str = "train",
        label_key: str | None = None,
        config: perf_config.PerfConfig | Mapping[str, Any] | None = None,
    ) -> None:
        """Constructs the component.

        Args:
            examples: `Examples` as the training code reads them.
            schema: `Schema` of raw examples; not needed with `transform_graph`.
            transform_graph: `TransformGraph`, if the examples are transformed.
            statistics: `ExampleStatistics`, for the number of examples in large data.
            split: the split to tune on.
            label_key: feature that the training code splits off as the label, if any.
            config: the settings are in its `input` section; None for the defaults.

        Raises:
            UserError: `config` is a mapping with a wrong key or value.
        """
        super().__init__(
            InputTunerSpec(
                examples=examples,
                schema=schema,
                transform_graph=transform_graph,
                statistics=statistics,
                config=perf_config.PerfConfig.of(config).to_json("input"),
                split=split,
                label_key=label_key,
                input_plan=tfx_types.Channel(type=types.InputPlan),
            )
        )
