"""What a train function returned, in a file: tensors in nested dictionaries, lists and tuples."""

import json
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

_FILE = "logs.json"
_VALUES, _DTYPE = "values", "dtype"


def write(logs: Any, folder: pathlib.Path) -> None:
    """Writes logs; what is no number becomes None."""
    (folder / _FILE).write_text(json.dumps(_encoded(logs)))


def read(folder: pathlib.Path) -> Any:
    """Returns the logs that `write` wrote, as tensors; tuples have become lists."""
    return _decoded(json.loads((folder / _FILE).read_text()))


def _encoded(logs: Any) -> Any:
    if isinstance(logs, dict):
        return {str(key): _encoded(value) for key, value in logs.items()}
    if isinstance(logs, (list, tuple)):
        return [_encoded(value) for value in logs]
    try:
        array = np.asarray(logs)
        if array.dtype == tf.bfloat16.as_numpy_dtype:
            array = array.astype(np.float32)
    except (TypeError, ValueError, tf.errors.OpError):  # e.g. a ragged tensor
        return None
    if array.dtype.kind not in "biuf":
        return None
    return {_VALUES: array.tolist(), _DTYPE: array.dtype.name}


def _decoded(document: Any) -> Any:
    if isinstance(document, list):
        return [_decoded(value) for value in document]
    if not isinstance(document, dict):
        return document
    if set(document) == {_VALUES, _DTYPE} and isinstance(document[_DTYPE], str):
        return tf.constant(np.array(document[_VALUES], document[_DTYPE]))
    return {key: _decoded(value) for key, value in document.items()}
