"""Reads a compiled pipeline and checks it as the server will."""

import pathlib
from typing import Any

import yaml

from tfx_perf import errors
from tfx_perf.kubeflow import lint, proto


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
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise errors.UserError(
            f"Expected a readable YAML file. Received: path={path} ({reason})."
        ) from error
    found = lint.problems(documents)
    return documents, found or proto.problems(documents)
