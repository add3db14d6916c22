"""A report's header: where the report comes from, and links to the reports it builds on."""

import datetime
import re
import shutil
from urllib import parse

import pytest

import tfx_perf
from tfx_perf.report import page as report
from tfx_perf.report.page import Link, Origin

PLAN = "InputTuner/input_plan/1/report.html"
METRICS = "OptimizedTrainer/perf_metrics/2"


def header_of(html):
    return html[html.index("</h1>") : html.index('<div class="verdict')]


def hrefs(html):
    return re.findall(r'<a href="([^"]*)">', html)


def test_the_header_says_when_what_and_where():
    origin = Origin(pipeline="taxi", run_id="run <1>", node="OptimizedTrainer")
    made = report.Report(title="t", verdict="v")
    header = header_of(made.render(origin=origin))
    for text in ("taxi", "run &lt;1&gt;", "OptimizedTrainer", tfx_perf.__version__):
        assert f"<b>{text}</b>" in header
    (shown,) = re.findall(r"<b>([\d: -]+) UTC</b>", header)
    time = datetime.datetime.strptime(f"{shown} +0000", "%Y-%m-%d %H:%M %z")
    assert abs(datetime.datetime.now(datetime.timezone.utc) - time) < datetime.timedelta(minutes=2)


def test_of_a_page_that_no_node_has_made_the_header_has_date_and_version():
    header = header_of(report.Report(title="t", verdict="v").render())
    assert re.findall(r"<span>([a-z-]+) ", header) == ["made", "tfx-perf"]
    assert "<a " not in header


@pytest.mark.parametrize("run", ["plain", "a run #1 at 50%"])
def test_links_hold_in_a_pipeline_root_that_is_moved(tmp_path, run):
    root = tmp_path / run
    for path in (PLAN, f"{METRICS}/report.html"):
        (root / path).parent.mkdir(parents=True)
    report.Report(title="the plan", verdict="v").write(root / PLAN)
    origin = Origin(siblings=(("InputTuner", str(root / PLAN)),))
    report.Report(title="t", verdict="v").write(root / METRICS / "report.html", origin=origin)
    shutil.move(root, tmp_path / "moved")
    folder = tmp_path / "moved" / METRICS
    (href,) = hrefs((folder / "report.html").read_text())
    assert "the plan" in (folder / parse.unquote(href)).read_text()


@pytest.mark.parametrize(
    ("address", "folder", "target"),
    [
        ("gs://bucket/taxi/a/report.html", "gs://bucket/taxi/b/2", "../../a/report.html"),
        ("s3://bucket/a/report.html", "s3://bucket/b", "../a/report.html"),
        ("gs://other/a/report.html", "gs://bucket/b", ""),
        ("gs://bucket/a/report.html", "/root/b", ""),
        ("/first/a b/report.html", "/second/b", "file:///first/a%20b/report.html"),
        ("/root/a/report.html", "/root/b", "../a/report.html"),
    ],
)
def test_a_link_is_relative_where_both_can_be_copied_together(address, folder, target):
    assert Link.on_page("a", address, folder=folder).target == target


def test_what_no_browser_can_follow_is_named_by_its_address():
    origin = Origin(siblings=(("InputTuner", "gs://other/a/report.html"),))
    html = report.Report(title="t", verdict="v").render(origin=origin, folder="/root/b")
    assert not hrefs(html)
    assert "InputTuner (gs://other/a/report.html)" in header_of(html)
