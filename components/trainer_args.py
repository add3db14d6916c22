"""Arguments for a stock `run_fn` module, and the function itself."""

import functools
import logging
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import json_format
from tfx import types
from tfx.components.trainer import executor as tfx_executor
from tfx.components.trainer import fn_args_utils
from tfx.components.util import udf_utils
from tfx.dsl.io import fileio
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils, standard_artifacts, standard_component_specs
from tfx.utils import io_utils, proto_utils

from tfx_perf.components import examples as examples_lib
from tfx_perf.components.types import Artifacts
from tfx_perf.core import cache_key, errors, storage
from tfx_perf.input import apply
from tfx_perf.input import record as input_record

INPUT_PLAN_KEY = "input_plan"
_PLAN_SOURCE_KEY, _STEPS_KEY = "input_plan_source", "train_steps"
_LOGGER = logging.getLogger(__name__)
_WHEELS_OF_TFX = "tfx_user_code_"


def code_digest(exec_properties: Mapping[str, Any]) -> str:
    """Returns a digest of the training code and its arguments; empty if there is no code."""
    module_path = exec_properties.get("module_path")
    module_file = exec_properties.get("module_file")
    run_fn = exec_properties.get("run_fn")
    if module_path:  # module@wheel; TFX puts a digest of the sources into the wheel's name
        code = pathlib.PurePath(module_path).name
    elif module_file:
        _check_module_file(module_file)
        with fileio.open(module_file, "rb") as file:
            code = cache_key.digest(file.read())
    elif run_fn:
        code = cache_key.of_source(run_fn)
    else:
        return ""
    arguments = [
        exec_properties.get(standard_component_specs.TRAIN_ARGS_KEY),
        exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY),
    ]
    return cache_key.digest(*(str(part).encode() for part in (run_fn, code, *arguments)))


def _check_module_file(module_file: str) -> None:
    if not fileio.exists(module_file):
        raise errors.UserError(
            f"Expected an existing module file. Received: module_file={module_file}."
        )


def with_train_steps(exec_properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties with `train_steps`, if given, moved into `train_args`."""
    properties = dict(exec_properties)
    steps = properties.pop(_STEPS_KEY, None)
    if steps is None:
        return properties
    if steps < 1:
        raise errors.UserError(f"Expected at least one step. Received: {_STEPS_KEY}={steps}.")
    key = standard_component_specs.TRAIN_ARGS_KEY
    arguments = json_format.Parse(properties[key], trainer_pb2.TrainArgs())
    arguments.num_steps = steps
    properties[key] = proto_utils.proto_to_json(arguments)
    return properties


def fn_args(
    input_dict: Artifacts,
    output_dict: Artifacts,
    exec_properties: dict[str, Any],
    *,
    worker_count: int = 1,
) -> fn_args_utils.FnArgs:
    """Returns the arguments that TFX's Trainer would give to `run_fn`, with the tuned input."""
    examples = input_dict[standard_component_specs.EXAMPLES_KEY]
    _check_splits(examples, exec_properties)
    # Private, but the only place that knows all arguments; the same in TFX 1.16 and 1.21.
    arguments = tfx_executor.GenericExecutor()._GetFnArgs(input_dict, output_dict, exec_properties)
    _check_examples(arguments.train_files, arguments.data_accessor)
    factory = arguments.data_accessor.tf_dataset_factory
    if worker_count > 1:  # also used where a plan does not apply, or is the default
        factory = examples_lib.by_rows_if_few_files(factory, worker_count=worker_count)
    record = input_plan(input_dict)
    if record:
        factory = apply.tuned_factory(factory, record, parser_for=examples_lib.parser_for(examples))
    arguments.data_accessor = arguments.data_accessor._replace(tf_dataset_factory=factory)
    return arguments


def missing_plan(input_dict: Artifacts, exec_properties: Mapping[str, Any]) -> str | None:
    """Returns a remark if an expected input plan is missing; otherwise None."""
    source = exec_properties.get(_PLAN_SOURCE_KEY)
    if not source or input_dict.get(INPUT_PLAN_KEY):
        return None
    return (
        f"Expected an input_plan from {source}. Received: none, so the examples are read as TFX "
        f"reads them. Add {source} to the pipeline's components."
    )


def input_plan(input_dict: Artifacts) -> input_record.TuningRecord | None:
    """Returns InputTuner's choice, None if there is no `input_plan`."""
    if not input_dict.get(INPUT_PLAN_KEY):
        return None
    uri = artifact_utils.get_single_uri(input_dict[INPUT_PLAN_KEY])
    return input_record.TuningRecord.read(storage.path(uri) / input_record.FILE_NAME)


def bound_run_fn(
    input_dict: Artifacts, exec_properties: dict[str, Any], *, folder: str, worker_count: int = 1
) -> Callable[[], None]:
    """Returns `run_fn` bound to its arguments; its outputs, in `folder`, are not kept."""
    # Imported before data are read: the module may configure TensorFlow's devices.
    run_fn = load_run_fn(exec_properties)
    outputs = outputs_in(tempfile.mkdtemp(dir=folder))
    arguments = fn_args(input_dict, outputs, exec_properties, worker_count=worker_count)
    return functools.partial(run_fn, arguments)


def outputs_in(folder: str) -> Artifacts:
    """Returns Trainer's output artifacts, in new folders below `folder`."""
    outputs = {}
    for key, item in (
        (standard_component_specs.MODEL_KEY, standard_artifacts.Model()),
        (standard_component_specs.MODEL_RUN_KEY, standard_artifacts.ModelRun()),
    ):
        item.uri = str(pathlib.Path(folder, key))
        pathlib.Path(item.uri).mkdir(parents=True)
        outputs[key] = [item]
    return outputs


def load_run_fn(exec_properties: Mapping[str, Any]) -> Callable[[fn_args_utils.FnArgs], None]:
    """Imports the user's `run_fn`, from a dotted path or a module's file, as TFX's Trainer does."""
    key = next(
        (key for key in ("module_path", "module_file", "run_fn") if exec_properties.get(key)), None
    )
    if key is None:
        raise errors.UserError(
            "Expected run_fn or module_file. Received: neither. Name the training module."
        )
    received = f"Received: {key}={exec_properties[key]}"
    if key == "run_fn" and "." not in exec_properties[key]:
        raise errors.UserError(f"Expected a dotted path such as package.module.run_fn. {received}.")
    if key == "module_file":
        _check_module_file(exec_properties[key])
    try:
        function = _import_run_fn(dict(exec_properties))
    except AttributeError as error:
        if not str(error).startswith("module ") or "has no attribute" not in str(error):
            raise
        raise errors.UserError(
            f"Expected a module that defines run_fn(fn_args). {received} ({error})."
        ) from error
    except (ImportError, SyntaxError) as error:
        cause = error.__cause__ or error  # TFX wraps the reason
        remedy = "Put its folder on PYTHONPATH, or install what it imports."
        if isinstance(cause, SyntaxError):
            remedy = f"Correct {cause.filename}, line {cause.lineno}."
        raise errors.UserError(
            f"Expected a training module that can be imported. {received} ({cause}). {remedy}"
        ) from error
    if not callable(function):
        raise errors.UserError(f"Expected run_fn to be a function. {received}.")
    return function


def _import_run_fn(exec_properties: dict[str, Any]) -> Any:
    """Returns `run_fn` as TFX does, but without running pip for modules that TFX has packaged.

    These are plain Python without requirements, and can be imported from their wheel.
    """
    name, _, wheel = (exec_properties.get("module_path") or "").partition("@")
    if not pathlib.PurePath(wheel).name.startswith(_WHEELS_OF_TFX):
        return udf_utils.get_fn(exec_properties, "run_fn")
    path = sys.path
    sys.path = [*path, io_utils.ensure_local(wheel)]
    try:
        return udf_utils.get_fn({"module_path": name}, "run_fn")
    finally:
        sys.path = path


def _check_splits(examples: list[types.Artifact], exec_properties: Mapping[str, Any]) -> None:
    existing = artifact_utils.decode_split_names(examples[0].split_names)
    for key, message, default in (
        (standard_component_specs.TRAIN_ARGS_KEY, trainer_pb2.TrainArgs(), "train"),
        (standard_component_specs.EVAL_ARGS_KEY, trainer_pb2.EvalArgs(), "eval"),
    ):
        json_format.Parse(exec_properties[key], message)
        for split in message.splits or [default]:
            if split not in existing:
                raise errors.UserError(
                    f"Expected {key} to name splits of the examples, {', '.join(existing)}. "
                    f"Received: split={split}."
                )


def _check_examples(patterns: list[str], accessor: fn_args_utils.DataAccessor) -> None:
    try:
        if examples_lib.has_examples(patterns, accessor.record_batch_factory):
            return
    except Exception:  # the training code may be able to read this format
        _LOGGER.info("TFXIO cannot read the examples.", exc_info=True)
        return
    raise errors.UserError(f"Expected training examples. Received: none in {', '.join(patterns)}.")
