"""Outputs for the Kubeflow UI beside the artifacts that TFX knows, and their files.

The UI shows only artifacts of its own types: `system.HTML` and `system.Markdown` are one file each,
`system.Metrics` is a table of the artifact's metadata.
"""

import pathlib
import shutil
from typing import TYPE_CHECKING, Any

from tfx_perf.core import formatting, metrics
from tfx_perf.mlmd import runs
from tfx_perf.report import page as report_page

if TYPE_CHECKING:
    from tfx.types import artifact

PREFIX = "system."

# The report, the figures as numbers (which the UI compares between runs), and as readable text.
HTML, METRICS, MARKDOWN = (f"{PREFIX}{kind}" for kind in ("HTML", "Metrics", "Markdown"))
_SUFFIXES = {"report": HTML, "figures": METRICS, "summary": MARKDOWN}

_NO_REPORT = "<!doctype html><title>No report</title><p>This run has no report.</p>"


def outputs_beside(key: str, title: str) -> dict[str, str]:
    """Returns the outputs that show another one, name to type; empty for most types."""
    if title not in runs.FIGURE_TYPES:
        return {}
    return {f"{key}_{suffix}": kind for suffix, kind in _SUFFIXES.items()}


def shown_by(name: str) -> str:
    """Returns the name of the output that `name`, one of `outputs_beside`'s, shows."""
    return name.rpartition("_")[0]


def write(kind: str, source: "artifact.Artifact", target: dict[str, Any]) -> None:
    """Writes a `system.HTML`, `system.Metrics` or `system.Markdown` for the UI.

    `target` is the UI's artifact as JSON, with the file to write as `uri`; it gets the figures.
    """
    figures = {
        key: source.get_float_custom_property(key)
        for key in metrics.CATALOGUE
        if source.has_custom_property(key)
    }
    path = pathlib.Path(target["uri"])
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == HTML:
        report = pathlib.Path(source.uri, report_page.FILE_NAME)
        if report.exists():
            shutil.copy(report, path)
        else:
            path.write_text(_NO_REPORT, encoding="utf-8")
    elif kind == METRICS:
        target["metadata"] = {**target.get("metadata", {}), **figures}
    else:
        path.write_text(_summary(source, figures), encoding="utf-8")


def _summary(source: "artifact.Artifact", figures: dict[str, float]) -> str:
    labels = {
        key: value.string_value
        for key, value in sorted(source.mlmd_artifact.custom_properties.items())
        if value.HasField("string_value") and not key.startswith("tfx_")
    }
    lines = [f"**{key.replace('_', ' ')}**: {label}\n" for key, label in labels.items()]
    if figures:
        lines += ["| metric | value |", "|---|---:|"]
        lines += [
            f"| {formatting.label(key)} | {formatting.format_value(key, value)} |"
            for key, value in figures.items()
        ]
    return "\n".join(lines) + "\n"
