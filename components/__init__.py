"""The TFX components of tfx-perf, each imported on first use without the others."""

import importlib
from typing import Any

from tfx_perf.core import errors
from tfx_perf.hardware import versions

_LAZY = {
    "InputTuner": "input_tuner.component",
    "MemoryProfiler": "memory_profiler.component",
    "OptimizedTrainer": "optimized_trainer.component",
    "PerfEvaluator": "perf_evaluator.component",
    "latest_ledger": "latest",
    "latest_metrics": "latest",
    "latest_plans": "latest",
}

__all__ = list(_LAZY)

if not versions.has_tfx():
    raise ImportError(
        "Expected TFX, which the components need. Received: no package tfx. "
        f"{errors.INSTALL_TFX} Without it there is tfx_perf.optimized, for Keras scripts.",
        name="tfx",
    )


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
