"""Names that Kubeflow Pipelines and Argo accept."""

import re

from tfx_perf import errors

# The server's rule for a pipeline; TFX's own limit is the shorter one.
PIPELINE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# Argo's rule for a DAG's tasks (workflow/validate).
TASK_NAME = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]*")

_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")


def check_pipeline_name(name: str) -> None:
    """Checks a pipeline's name.

    Raises:
        UserError: the server would refuse it.
    """
    if not PIPELINE_NAME.fullmatch(name):
        raise errors.UserError(
            "Expected a pipeline name of lower-case letters, digits and hyphens, 63 at most. "
            f"Received: pipeline_name={name}. Try {task_name(name)[:63].strip('-') or 'pipeline'}."
        )


def task_name(node_id: str) -> str:
    """Returns a node's name in the spec, e.g. `csv-example-gen` for `CsvExampleGen`."""
    words = _WORD_BEGINS.sub("-", node_id).lower()
    return _NOT_IN_A_NAME.sub("-", words).strip("-")


def component_name(node_id: str) -> str:
    """Returns the name of a node's component; `kfp.local` wants the prefix."""
    return f"comp-{task_name(node_id)}"


def executor_name(node_id: str) -> str:
    """Returns the name of a node's executor; `kfp.local` wants the prefix."""
    return f"exec-{task_name(node_id)}"
