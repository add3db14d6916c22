"""Outputs that the Kubeflow UI shows, beside the artifacts that TFX knows.

The UI shows nothing of an artifact of another type than its own: `system.HTML` and
`system.Markdown` are a file each, `system.Metrics` is a table of the artifact's metadata.
"""

PREFIX = "system."

# The report, the figures as numbers (which the UI compares between runs) and as people read them.
HTML, METRICS, MARKDOWN = (f"{PREFIX}{kind}" for kind in ("HTML", "Metrics", "Markdown"))
_SUFFIXES = {"report": HTML, "figures": METRICS, "summary": MARKDOWN}

_REPORTED = frozenset(
    f"tfx_perf.{name}" for name in ("InputPlan", "MemoryProfile", "PerfMetrics", "PerfEvaluation")
)


def beside(key: str, title: str) -> dict[str, str]:
    """Returns the outputs that show another one, name to type; empty for most.

    Args:
        key: name of the output that is shown.
        title: its type, e.g. `tfx_perf.PerfMetrics`.
    """
    if title not in _REPORTED:
        return {}
    return {f"{key}_{suffix}": kind for suffix, kind in _SUFFIXES.items()}


def shown_by(name: str) -> str:
    """Returns the name of the output that `name`, one of `beside`'s, shows."""
    return name.rpartition("_")[0]
