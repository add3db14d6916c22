"""tfx-perf: TFX components that make training fast, prove it, and stop regressions.

The artifact types are importable here because TFX containers look a custom type up as
`tfx_perf.<Class>`; they load lazily so that `import tfx_perf` does not import tfx.
"""

import importlib
from typing import Any

from tfx_perf.core import VERSION

_LAZY = {
    **dict.fromkeys(
        ("InputPlan", "MemoryProfile", "PerfMetrics", "PerfLedger", "PerfEvaluation"),
        "tfx_perf.components.types",
    ),
    "PerfConfig": "tfx_perf.config",
    "measured": "tfx_perf.script",
    "optimized": "tfx_perf.script",
}
# Modules that projects from the templates of version 0.1 import from here.
_OF_0_1 = {"errors": "tfx_perf.core.errors", "quiet": "tfx_perf.core.console"}

__version__ = VERSION
__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _OF_0_1:
        return importlib.import_module(_OF_0_1[name])
    if name not in _LAZY:
        raise AttributeError(f"module 'tfx_perf' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
