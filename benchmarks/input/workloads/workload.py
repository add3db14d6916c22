"""The description of a data set for the benchmark."""

import dataclasses
import importlib.util
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tfx_perf.core import errors

LABEL_KEY = "label"
SEED = 20130101

# A dense feature as an array of shape [rows], a variable-length one as a `pyarrow.ListArray`.
Columns = Mapping[str, Any]
Decode = Callable[[dict[str, Any], Any], tuple[dict[str, Any], Any]]


@dataclasses.dataclass(frozen=True)
class Workload:
    """A data set and the user's code that belongs to it.

    Attributes:
        name: on the command line.
        description: for people.
        batch_size: examples in a batch of the training.
        class_count: the label's values are 0 .. class_count - 1.
        tables: yields the rows in blocks, the same in each call; with a column `label`.
        tabular: whether all features are scalars.
        ragged: whether the schema asks for ragged instead of sparse tensors.
        decode: function that the user's `_input_fn` maps over the factory's batches; None for none.
    """

    name: str
    description: str
    batch_size: int
    class_count: int
    tables: Callable[[], Iterator[Columns]]
    tabular: bool = False
    ragged: bool = False
    decode: Decode | None = None


def package_file(package: str, path: str, *, remedy: str) -> pathlib.Path:
    """Returns a data file of an installed package, which is not imported.

    Args:
        package: name to import.
        path: below the package's folder.
        remedy: how to get the package.

    Raises:
        UserError: the package or the file is not there.
    """
    spec = importlib.util.find_spec(package)
    for folder in spec.submodule_search_locations or () if spec else ():
        if (found := pathlib.Path(folder, path)).exists():
            return found
    raise errors.UserError(
        f"Expected {path} of the package {package}. Received: it is not installed. {remedy}"
    )
