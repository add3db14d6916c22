"""Reads a compiled pipeline and checks it as the server will."""

import pathlib
from typing import Any

from tfx_perf import errors
from tfx_perf.kubeflow import lint, proto
from tfx_perf.settings import yaml_file


def read(path: str | pathlib.Path) -> dict[str, Any]:
    """Returns the pipeline spec in a file.

    Args:
        path: of a `.yaml` or `.yml` file.

    Raises:
        UserError: the file cannot be read, or the server would refuse it; the first reason.
    """
    path = pathlib.Path(path)
    documents, found = problems(path)
    if found:
        others = f" And {len(found) - 1} more." if len(found) > 1 else ""
        raise errors.UserError(
            f"Expected a pipeline that Kubeflow accepts. Received: {path} ({found[0]}).{others}"
        )
    proto.check_loads(path)
    return documents[0]


def problems(path: pathlib.Path) -> tuple[list[Any], list[str]]:
    """Returns the documents in a file and what the server would refuse.

    Raises:
        UserError: the file cannot be read or is not YAML.
    """
    if path.suffix not in (".yaml", ".yml"):
        raise errors.UserError(
            f"Expected a file that ends in .yaml or .yml. Received: path={path}."
        )
    documents = yaml_file.read_documents(path)
    found = lint.problems(documents)
    return documents, found or proto.problems(documents)
