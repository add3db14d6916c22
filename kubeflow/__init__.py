"""Compiles a TFX pipeline for Kubeflow Pipelines, checks, uploads and runs it."""

import importlib
from typing import Any

_LAZY = {
    "Job": "server",
    "KubeflowSettings": "settings",
    "NodeSettings": "settings",
    "PipelineServer": "server",
    "compile_pipeline": "compiler",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
