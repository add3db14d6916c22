"""The Kubeflow UI's view of an output: its report, its figures, a summary."""

import pytest

from tfx_perf.components import types
from tfx_perf.kubeflow import ui


@pytest.fixture
def measured(tmp_path):
    item = types.PerfMetrics()
    item.uri = str(tmp_path)
    item.set_float_custom_property("step_time_seconds", 0.25)
    item.set_string_custom_property("plan", "5 steps per execution")
    item.set_string_custom_property("tfx_version", "1")
    return item


def test_the_report_is_the_components_own_page(measured, tmp_path):
    target = {"uri": str(tmp_path / "shown" / "report")}
    ui.write(ui.HTML, measured, target)
    assert "no report" in (tmp_path / "shown" / "report").read_text()
    (tmp_path / "report.html").write_text("a page")
    ui.write(ui.HTML, measured, target)
    assert (tmp_path / "shown" / "report").read_text() == "a page"


def test_figures_are_added_to_existing_metadata(measured, tmp_path):
    target = {"uri": str(tmp_path / "figures"), "metadata": {"before": 1}}
    ui.write(ui.METRICS, measured, target)
    assert target["metadata"] == {"before": 1, "step_time_seconds": 0.25}


def test_a_summary_has_labels_and_figures_as_people_read_them(measured, tmp_path):
    ui.write(ui.MARKDOWN, measured, {"uri": str(tmp_path / "summary")})
    assert (tmp_path / "summary").read_text().splitlines() == [
        "**plan**: 5 steps per execution", "", "| metric | value |", "|---|---:|",
        "| step time | 250 ms |",
    ]  # fmt: skip
