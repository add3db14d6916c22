"""The base of the components that run training code: its arguments and its packaging."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from tfx import types as tfx_types
from tfx.components.util import udf_utils
from tfx.dsl.components.base import base_component
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_component_specs
from tfx.utils import json_utils
from typing_extensions import Required, TypedDict, get_type_hints

from tfx_perf import isolate
from tfx_perf.config import PerfConfig
from tfx_perf.core import cache_key, errors

# TFX reuses a cached result if inputs and properties are the same; the digest is the property that
# changes with an edit of the code. The steps are a separate property, because `train_args` is one
# JSON text, in which no orchestrator can replace a number.
PARAMETERS = {
    **standard_component_specs.TrainerSpec.PARAMETERS,
    "source_digest": component_spec.ExecutionParameter(type=str, optional=True),
    "train_steps": component_spec.ExecutionParameter(type=int, optional=True),
    "config": component_spec.ExecutionParameter(type=str),
}
# For components that take an input plan: if its producer is not in the pipeline, the executor gets
# an empty input or none, as if the plan had not been passed at all.
PLAN_PARAMETERS = {"input_plan_source": component_spec.ExecutionParameter(type=str, optional=True)}


class TrainingArguments(TypedDict, total=False):
    """The arguments of a component that runs training code, like those of TFX's Trainer.

    Attributes:
        examples: `Examples` as the code reads them, raw or transformed.
        run_fn: import path of the training function, e.g. `models.model.run_fn`. If its package is
            on this machine, a digest of it is among the properties, so that TFX's cache notices an
            edit of the code.
        module_file: instead of `run_fn`, path of a module that defines it; packaged as by Trainer.
        transform_graph: `TransformGraph`, if the examples are transformed, or the code reads it.
        schema: `Schema` of the examples; InputTuner needs none with `transform_graph`.
        base_model: `Model` to start from, if the code does.
        hyperparameters: `HyperParameters` from a Tuner, if the code reads them.
        train_args: splits and steps to train; by default the split `train`.
        train_steps: overrides the steps in `train_args`; may be a RuntimeParameter.
        eval_args: splits and steps to evaluate; by default the split `eval`.
        custom_config: passed to the code.
        config: settings; each component uses only its own sections. None for the defaults.
    """

    examples: Required[tfx_types.BaseChannel]
    run_fn: str | data_types.RuntimeParameter | None
    module_file: str | data_types.RuntimeParameter | None
    transform_graph: tfx_types.BaseChannel | None
    schema: tfx_types.BaseChannel | None
    base_model: tfx_types.BaseChannel | None
    hyperparameters: tfx_types.BaseChannel | None
    train_args: trainer_pb2.TrainArgs | data_types.RuntimeParameter | None
    train_steps: int | data_types.RuntimeParameter | None
    eval_args: trainer_pb2.EvalArgs | data_types.RuntimeParameter | None
    custom_config: Mapping[str, Any] | data_types.RuntimeParameter | None
    config: PerfConfig | Mapping[str, Any] | None


class TrainingComponent(base_component.BaseComponent):
    """A component that runs training code."""

    SECTIONS: ClassVar[tuple[str, ...]]
    """The sections of the settings that the component uses."""
    NEEDS_CODE: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Lists the arguments in `given` in the signature of the component's constructor."""
        super().__init_subclass__(**options)
        construct = vars(cls).get("__init__")
        if construct is None:
            return
        itself, *parameters = inspect.signature(construct).parameters.values()
        required = TrainingArguments.__required_keys__
        given = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=annotation,
                default=inspect.Parameter.empty if name in required else None,
            )
            for name, annotation in get_type_hints(TrainingArguments).items()
        ]
        others = [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
        construct.__signature__ = inspect.Signature([itself, *given, *others])

    def __init__(self, given: TrainingArguments, **others: Any) -> None:
        """Constructs the component; `others` are the rest of its inputs, properties and outputs.

        Raises:
            UserError: not exactly one of `run_fn` and `module_file` is given, or `config` is a
                mapping with a wrong key or value.
        """
        for name in given.keys() - TrainingArguments.__annotations__.keys():  # TFX ignores it
            raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {name!r}.")
        run_fn, module_file = given.get("run_fn"), given.get("module_file")
        if self.NEEDS_CODE or run_fn or module_file:
            check_one_module(module_file=module_file, run_fn=run_fn)
        custom_config = given.get("custom_config")
        if not isinstance(custom_config, data_types.RuntimeParameter):
            custom_config = json_utils.dumps(custom_config)
        isolate.import_early()
        super().__init__(
            self.SPEC_CLASS(
                **{
                    **dict.fromkeys(TrainingArguments.__optional_keys__),
                    **given,
                    "source_digest": source_digest(run_fn),
                    "train_args": given.get("train_args") or trainer_pb2.TrainArgs(),
                    "eval_args": given.get("eval_args") or trainer_pb2.EvalArgs(),
                    "custom_config": custom_config,
                    "config": PerfConfig.of(given.get("config")).to_json(*self.SECTIONS),
                },
                **others,
            )
        )
        if udf_utils.should_package_user_modules():
            udf_utils.add_user_module_dependency(
                self,
                standard_component_specs.MODULE_FILE_KEY,
                standard_component_specs.MODULE_PATH_KEY,
            )


def check_one_module(*, module_file: Any, run_fn: Any) -> None:
    """Checks that the training code is in one place from which other processes can import it."""
    if bool(module_file) == bool(run_fn):
        raise errors.UserError(
            "Expected exactly one of module_file and run_fn. "
            f"Received: module_file={module_file!r}, run_fn={run_fn!r}."
        )
    if str(run_fn).startswith("__main__."):
        raise errors.UserError(
            "Expected a function that other processes can import. "
            f"Received: run_fn={run_fn}. Move it into a separate module, or give module_file."
        )


def source_digest(function: Any) -> str | None:
    """Returns the digest of a function's code for a component's properties.

    None if a run fills in the import path later, or the code is not on this machine: a pipeline may
    be compiled in one place and run in another, which then reports missing code.
    """
    if not isinstance(function, str):
        return None
    try:
        return cache_key.of_source(function)
    except (errors.UserError, ImportError, OSError, ValueError):
        return None


def plan_source(input_plan: tfx_types.BaseChannel | None) -> str | None:
    """Returns the id of the node that an input plan comes from, as an execution property."""
    if input_plan is None:
        return None
    return getattr(input_plan, "producer_component_id", None) or "another node"
