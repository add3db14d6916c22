"""Arguments for a stock `run_fn` module, and the function itself."""

import contextlib
import email
import hashlib
import logging
import os
import pathlib
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.protobuf import json_format
from tfx import types
from tfx.components.trainer import executor as tfx_executor
from tfx.components.trainer import fn_args_utils
from tfx.components.util import udf_utils
from tfx.dsl.io import fileio
from tfx.orchestration import data_types
from tfx.proto import trainer_pb2
from tfx.types import (
    artifact_utils,
    component_spec,
    standard_artifacts,
    standard_component_specs,
)
from tfx.utils import io_utils, json_utils, proto_utils

from tfx_perf.components import examples as examples_lib
from tfx_perf.core import cache_key, errors, storage
from tfx_perf.input import record as input_record

INPUT_PLAN_KEY = "input_plan"
_PLAN_SOURCE_KEY, _STEPS_KEY = "input_plan_source", "train_steps"
# For the PARAMETERS of a ComponentSpec that takes an input plan. Of a node that is not in the
# pipeline, an executor gets an empty input or none, as if nobody had wired it.
PLAN_PARAMETERS = {_PLAN_SOURCE_KEY: component_spec.ExecutionParameter(type=str, optional=True)}
# Likewise of one that takes training code. TFX takes a result from cache if inputs and properties
# are the same, and the digest is what an edit of the code changes among them. The steps are a
# property beside `train_args`, one JSON text in which no orchestrator can change a number.
CODE_PARAMETERS = {
    "source_digest": component_spec.ExecutionParameter(type=str, optional=True),
    _STEPS_KEY: component_spec.ExecutionParameter(type=int, optional=True),
}
_LOGGER = logging.getLogger(__name__)
_Artifacts = dict[str, list[types.Artifact]]
_OTHERS = 0o077  # of a mode: all rights but the owner's


def check_one_module(*, module_file: Any, run_fn: Any) -> None:
    """Checks that other processes can import the training code, from one place."""
    if bool(module_file) == bool(run_fn):
        raise errors.UserError(
            "Expected exactly one of module_file and run_fn. "
            f"Received: module_file={module_file!r}, run_fn={run_fn!r}."
        )
    if str(run_fn).startswith("__main__."):
        raise errors.UserError(
            "Expected a function that other processes can import. "
            f"Received: run_fn={run_fn}. Move it into a module of its own, or give module_file."
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
    """Returns the properties with `train_steps`, if it is given, put into `train_args`."""
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
    input_dict: _Artifacts,
    output_dict: _Artifacts,
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
    if worker_count > 1:  # also where a plan does not serve, or is the default
        factory = examples_lib.by_rows_if_few_files(factory, worker_count=worker_count)
    record = input_plan(input_dict)
    if record:
        factory = examples_lib.plan_factory(examples, record, default=factory)
    arguments.data_accessor = arguments.data_accessor._replace(tf_dataset_factory=factory)
    if not record and (missing := missing_plan(input_dict, exec_properties)) is not None:
        _LOGGER.warning("%s", missing)
    return arguments


def missing_plan(input_dict: _Artifacts, exec_properties: Mapping[str, Any]) -> str | None:
    """Returns a remark on an input plan that should have come but did not; None if all is well."""
    source = exec_properties.get(_PLAN_SOURCE_KEY)
    if not source or input_dict.get(INPUT_PLAN_KEY):
        return None
    return (
        f"Expected an input_plan from {source}. Received: none, so the examples are read as TFX "
        f"reads them. Add {source} to the pipeline's components."
    )


def plan_source(input_plan: types.BaseChannel | None) -> str | None:
    """Returns the id of the node that an input plan comes from, as an execution property."""
    if input_plan is None:
        return None
    return getattr(input_plan, "producer_component_id", None) or "another node"


def input_plan(input_dict: _Artifacts) -> input_record.TuningRecord | None:
    """Returns InputTuner's choice, None if there is no `input_plan`."""
    if not input_dict.get(INPUT_PLAN_KEY):
        return None
    uri = artifact_utils.get_single_uri(input_dict[INPUT_PLAN_KEY])
    return input_record.TuningRecord.read(storage.path(uri) / input_record.FILE_NAME)


def custom_config_property(
    custom_config: Mapping[str, Any] | data_types.RuntimeParameter | None,
) -> str | data_types.RuntimeParameter:
    """Returns the execution property that Trainer makes of its argument."""
    if isinstance(custom_config, data_types.RuntimeParameter):
        return custom_config
    return json_utils.dumps(custom_config)


def outputs_in(folder: str) -> _Artifacts:
    """Returns Trainer's outputs in new folders, for a `run_fn` whose outputs nobody keeps."""
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
        function = _imported(dict(exec_properties))
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


def _imported(exec_properties: dict[str, Any]) -> Any:
    """Returns `run_fn` as TFX does, but without pip for a module that TFX has packaged."""
    name, _, wheel = (exec_properties.get("module_path") or "").partition("@")
    folder = unpacked(wheel) if wheel else None
    if folder is None:
        return udf_utils.get_fn(exec_properties, "run_fn")
    with importable(folder):
        return udf_utils.get_fn({"module_path": name}, "run_fn")


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
    except Exception:  # of a format that the training code may know
        _LOGGER.info("TFXIO cannot read the examples.", exc_info=True)
        return
    raise errors.UserError(f"Expected training examples. Received: none in {', '.join(patterns)}.")


def unpacked(wheel: str) -> pathlib.Path | None:
    """Returns a user's folder with the content of a wheel; None if it takes pip to install it."""
    path = pathlib.Path(io_utils.ensure_local(wheel))
    try:
        root = _own_folder()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with zipfile.ZipFile(path) as archive:
            if root is None or not _is_plain(archive):
                return None
            folder = root / digest
            for name in archive.namelist():
                _put(folder / name, archive.read(name))
    except (OSError, zipfile.BadZipFile):
        return None  # pip says what is wrong, or can do it
    return folder


@contextlib.contextmanager
def importable(folder: pathlib.Path) -> Iterator[None]:
    """Lets this process and its children import from a folder, as TFX does with its own."""
    path, variable = sys.path, os.environ.get("PYTHONPATH")
    sys.path = [*path, str(folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (variable, str(folder))))
    try:
        yield
    finally:
        sys.path = path
        if variable is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = variable


def _own_folder() -> pathlib.Path | None:
    """Returns a folder that nobody else can write to; None if another one has taken the name."""
    folder = pathlib.Path(tempfile.gettempdir(), f"tfx-perf-modules-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_ours = folder.is_dir() and not folder.is_symlink() and found.st_uid == os.getuid()
    return folder if is_ours and not found.st_mode & _OTHERS else None


def _is_plain(archive: zipfile.ZipFile) -> bool:
    """Whether pip would only unpack it: pure Python without requirements."""
    names = archive.namelist()
    infos = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    info = min(infos, default="")
    if len(infos) != 1 or not {f"{info}/WHEEL", f"{info}/METADATA"} <= set(names):
        return False
    wheel = email.message_from_bytes(archive.read(f"{info}/WHEEL"))
    metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    return (
        wheel["Root-Is-Purelib"] == "true"
        and all(tag.endswith("-none-any") for tag in wheel.get_all("Tag", ["unknown"]))
        and not metadata.get_all("Requires-Dist")
        and all(_is_inside(name) for name in names)
    )


def _is_inside(name: str) -> bool:
    parts = pathlib.PurePosixPath(name).parts
    # Files in `.data` go elsewhere; a name that ends with a slash is a folder.
    return not (
        name.endswith("/")
        or name.startswith("/")
        or ".." in parts
        or parts[0].endswith(".data")
    )


def _put(path: pathlib.Path, content: bytes) -> None:
    """Writes a file that nobody sees half written; a system may have cleared it away."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_bytes(path, content)
