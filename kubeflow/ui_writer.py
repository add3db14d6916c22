"""Writes what the Kubeflow UI shows of an output: its report, its figures, a summary."""

import pathlib
import shutil
from typing import Any

from tfx.types import artifact

from tfx_perf import formatting, metrics
from tfx_perf.kubeflow import ui_outputs
from tfx_perf.report import page as report_page

_Json = dict[str, Any]

_NO_REPORT = "<!doctype html><title>No report</title><p>This run has no report.</p>"


def write(kind: str, source: artifact.Artifact, target: _Json) -> None:
    """Writes one output for the UI.

    Args:
        kind: `system.HTML`, `system.Metrics` or `system.Markdown`.
        source: the output that is shown; its `uri` is a local folder.
        target: the artifact for the UI as JSON; its `uri` is the local file to write. Figures
            go into its metadata.
    """
    figures = {
        key: source.get_float_custom_property(key)
        for key in metrics.CATALOGUE
        if source.has_custom_property(key)
    }
    path = pathlib.Path(target["uri"])
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == ui_outputs.HTML:
        report = pathlib.Path(source.uri, report_page.FILE_NAME)
        if report.exists():
            shutil.copy(report, path)
        else:
            path.write_text(_NO_REPORT, encoding="utf-8")
    elif kind == ui_outputs.METRICS:
        target["metadata"] = {**target.get("metadata", {}), **figures}
    else:
        path.write_text(_summary(source, figures), encoding="utf-8")


def _summary(source: artifact.Artifact, figures: dict[str, float]) -> str:
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
