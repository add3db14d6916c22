"""What the servers of Kubernetes and Kubeflow Pipelines say when they refuse something."""

import json
from typing import Any

_LENGTH = 500


def message(error: Any) -> str:
    """Returns a server's reason in one line.

    Args:
        error: an `ApiException` of the libraries `kubernetes` or `kfp_server_api`.
    """
    try:
        document = json.loads(error.body)
        text = document.get("message") or document.get("error") or error.reason
    except (AttributeError, TypeError, ValueError):
        text = error.body or error.reason or "no reason given"
    return " ".join(str(text).split())[:_LENGTH].rstrip(".")
