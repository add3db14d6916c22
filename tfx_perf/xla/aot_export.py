"""A saved model compiled ahead of time for the CPU, by the compiler in TensorFlow's wheels."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tensorflow as tf

from tfx_perf.core import errors, storage
from tfx_perf.tf_internals import graphs

FOLDER = os.path.join("assets.extra", "aot_cpu")  # for tools other than SavedModel, see its README

_CLASS = "tfx_perf::Model"
_NAME = "model"
_TIMEOUT_SECONDS = 600
_OBJECT_BEGINS = b"\x7fELF"
_ERROR = re.compile(r"[\w.]+Error: ")


def export(folder: str, *, signature: str) -> str:
    """Compiles a signature of a local SavedModel; returns a folder with objects and `model.h`.

    `saved_model_cli aot_compile_cpu` compiles in its own process, for the kind of CPU that it runs
    on. Open dimensions become 1. A makefile shows how to link. Raises MeasurementError, in one
    line, if the signature does not exist, has strings, or cannot be compiled.
    """
    _check(folder, signature)
    target = pathlib.Path(folder, FOLDER)
    with tempfile.TemporaryDirectory() as frozen, tempfile.TemporaryDirectory() as draft:
        _freeze(folder, signature, frozen)
        command = [
            *(sys.executable, "-m", graphs.SAVED_MODEL_CLI, "aot_compile_cpu"),
            *("--dir", frozen, "--tag_set", "serve", "--signature_def_key", signature),
            *("--output_prefix", os.path.join(draft, _NAME), "--cpp_class", _CLASS),
        ]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise _failed(signature, f"no end within {_TIMEOUT_SECONDS} seconds") from error
        header, compiled = (pathlib.Path(draft, f"{_NAME}.{kind}") for kind in ("h", "o"))
        if not (header.exists() and compiled.exists()):
            raise _failed(signature, _reason(result))
        if not compiled.read_bytes().startswith(_OBJECT_BEGINS):
            raise _failed(signature, "the compiler's output is no object file")
        shutil.copytree(draft, target, dirs_exist_ok=True)
    return str(target)


def _freeze(folder: str, signature: str, target: str) -> None:
    """Writes a saved model of the signature with fixed dimensions and constants as weights."""
    loaded = tf.saved_model.load(folder)  # kept: its functions do not keep its variables alive
    function = loaded.signatures[signature]
    specs = {
        name: tf.TensorSpec([size or 1 for size in spec.shape], spec.dtype, name=name)
        for name, spec in function.structured_input_signature[1].items()
    }

    def fixed(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return function(**inputs)

    constant = graphs.with_constants(
        tf.function(fixed, autograph=False).get_concrete_function(**specs)
    )
    # The inputs and outputs of `constant` are flat, in the order of their sorted names.
    names = sorted(function.structured_outputs)

    def call(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = constant(*(inputs[name] for name in sorted(specs)))
        return dict(zip(names, tf.nest.flatten(outputs), strict=True))

    saved = tf.function(call, autograph=False).get_concrete_function(**specs)
    tf.saved_model.save(tf.Module(), target, signatures={signature: saved})


def _check(folder: str, signature: str) -> None:
    if storage.is_remote(folder):
        raise _failed(signature, f"{folder} is not a local folder")
    signatures = graphs.signatures(folder)
    if signature not in signatures:
        known = ", ".join(sorted(name for name in signatures if not name.startswith("__")))
        raise _failed(signature, f"the model has the signatures {known or '(none)'}")
    for name, tensor in signatures[signature].inputs.items():
        if tensor.dtype == tf.string.as_datatype_enum:
            raise _failed(
                signature, f"its input {name} is a string, which XLA does not know; save another "
                "signature that takes numbers"
            )


def _reason(result: subprocess.CompletedProcess) -> str:
    """Returns the line of the compiler's output that names an error, otherwise the last one."""
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    named = [line for line in lines if _ERROR.match(line)]
    return (named or lines or [f"exit code {result.returncode}"])[-1].rstrip(".")


def _failed(signature: str, reason: str) -> errors.MeasurementError:
    return errors.MeasurementError(
        f"Expected a signature that can be compiled. Received: aot_signature={signature}, but "
        f"{reason}."
    )
