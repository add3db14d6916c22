"""Digests of the user's code: an import path stays the same when the code is edited."""

import importlib.util
import itertools
import os
import pathlib
import zipfile
from collections.abc import Iterator, Mapping
from importlib import machinery
from typing import Any

from tfx.dsl.io import fileio
from tfx.types import component_spec, standard_component_specs

from tfx_perf import errors, fingerprint

# What else decides on the training step, beside the code.
_ARGUMENTS = (
    standard_component_specs.TRAIN_ARGS_KEY,
    standard_component_specs.CUSTOM_CONFIG_KEY,
)

# For the PARAMETERS of a ComponentSpec. TFX takes a result from cache if inputs and properties are
# the same, and the digest is what an edit of the code changes among them.
PARAMETERS = {"source_digest": component_spec.ExecutionParameter(type=str, optional=True)}


def known_digest(function: Any) -> str | None:
    """Returns the digest of a function's code for a component's properties.

    Args:
        function: import path, or what a run puts one in the place of, or None.

    Returns:
        None if the function is not known yet, or its code is not here: a pipeline may be compiled
        in one place and run in another, and there it is said if the code is missing.
    """
    if not isinstance(function, str):
        return None
    try:
        return source_digest(function)
    except (errors.UserError, ImportError, OSError, ValueError):
        return None


def source_digest(function: str) -> str:
    """Returns a digest of the top-level package or module that a function is in.

    Args:
        function: import path.

    Raises:
        UserError: there is no such module.
    """
    importlib.invalidate_caches()  # what finders know of an archive that was edited since
    name = function.partition(".")[0]
    # A script has none, nor could another process import it.
    spec = None if name == "__main__" else importlib.util.find_spec(name)
    if spec is None:
        raise errors.UserError(
            f"Expected the import path of a function. Received: {function}, but there is no "
            f"module {name} on PYTHONPATH."
        )
    # The name and length say where a file ends and the next begins.
    parts = ((f"{file}\0{len(data)}\0".encode(), data) for file, data in _files(spec))
    return fingerprint.digest(*itertools.chain.from_iterable(parts))


def _files(spec: machinery.ModuleSpec) -> list[tuple[str, bytes]]:
    """Returns the relative name and the content of each of a module's files."""
    folders = map(pathlib.Path, spec.submodule_search_locations or ())
    files = [file for folder in folders for file in sorted(_modules_below(folder))]
    if files or not spec.has_location or spec.origin is None:
        return files
    origin = pathlib.Path(spec.origin)
    loader: Any = spec.loader  # of a zip archive
    data = origin.read_bytes() if origin.is_file() else loader.get_data(spec.origin)
    return [(origin.name, data)]


def _modules_below(folder: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Yields the relative name and the content of each module; the folder may be in an archive."""
    for file in folder.rglob("*.py"):
        yield file.relative_to(folder).as_posix(), file.read_bytes()
    archive = next((parent for parent in folder.parents if zipfile.is_zipfile(parent)), None)
    if archive is None:
        return
    within = f"{folder.relative_to(archive).as_posix()}/"
    with zipfile.ZipFile(archive) as zipped:
        for name in zipped.namelist():
            if name.startswith(within) and name.endswith(".py"):
                yield name.removeprefix(within), zipped.read(name)


def training_digest(exec_properties: Mapping[str, Any]) -> str:
    """Returns a digest of the training code and its arguments; empty if there is no code.

    Args:
        exec_properties: as Trainer's.

    Raises:
        UserError: there is no such module.
    """
    module_path = exec_properties.get("module_path")
    module_file = exec_properties.get("module_file")
    run_fn = exec_properties.get("run_fn")
    if module_path:  # module@wheel; TFX puts a digest of the sources into the wheel's name
        code = os.path.basename(module_path)
    elif module_file:
        if not fileio.exists(module_file):
            raise errors.UserError(
                f"Expected an existing module file. Received: module_file={module_file}."
            )
        with fileio.open(module_file, "rb") as file:
            code = fingerprint.digest(file.read())
    elif run_fn:
        code = source_digest(run_fn)
    else:
        return ""
    arguments = [str(exec_properties.get(key)) for key in _ARGUMENTS]
    return fingerprint.digest(*(part.encode() for part in [str(run_fn), code, *arguments]))
