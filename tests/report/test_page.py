"""Pages and plots: self-contained, escaped, complete."""

import re
import xml.etree.ElementTree as ET

import pytest

from tfx_perf.core.statistics import Interval
from tfx_perf.report import page as report
from tfx_perf.report import plots


def interval(value, low, high):
    return Interval(value=value, low=low, high=high)


DRAWINGS = {
    "interval_bars": lambda: plots.interval_bars(
        [("plain & simple", interval(3.0, 2.5, 3.5)), ("fast", interval(1.0, 1.0, 1.0))],
        xlabel="ms",
        highlight="fast",
    ),
    "stacked_bars": lambda: plots.stacked_bars(
        {"batch 8": {"weights": 1.0, "rest": 2.0}, "batch 16": {"weights": 1.0, "rest": 4.0}},
        xlabel="MiB",
    ),
    "lines": lambda: plots.lines(
        {"a": ([1, 2], [3.0, 4.0]), "b": ([1], [5.0])}, xlabel="steps", ylabel="ms", markers=True
    ),
    "log": lambda: plots.lines({"a": ([1, 2], [3, 4e3])}, xlabel="x", ylabel="y", log_scale=True),
}


def made_page():
    made = report.Report(title="A <title>", verdict="5 > 4 & good", tone="good")
    made.add_table("Table", columns=["a<b", "c"], rows=[["<script>", 2], ["x", None]], note="n&m")
    made.add_figure("Figure", svg=DRAWINGS["lines"], note="a note")
    made.add_text("Text", note="only words")
    return made


def test_everything_is_there_in_order_and_escaped():
    html = made_page().render()
    heading = ["A &lt;title&gt;", "5 &gt; 4 &amp; good"]
    parts = [*heading, "a&lt;b", "&lt;script&gt;", "<svg", "only words"]
    places = [html.index(part) for part in parts]
    assert places == sorted(places)
    assert "<script" not in html
    assert "n&amp;m" in html
    assert 'class="verdict good"' in html


def test_a_long_name_goes_on_in_the_next_line_and_nothing_else_does():
    made = report.Report(title="t", verdict="v")
    cells = ["peak_memory_share_ratio", "step_time", "/a/run-1/train.log", "a < b.c and d.e"]
    made.add_table("Table", columns=["a"], rows=[[cell] for cell in cells])
    html = made.render()
    assert ">peak_<wbr>memory_<wbr>share_<wbr>ratio</td>" in html
    assert ">/<wbr>a/<wbr>run-1/<wbr>train.<wbr>log</td>" in html
    assert ">step_time</td>" in html
    assert ">a &lt; b.c and d.e</td>" in html


def test_a_page_needs_no_network():
    html = made_page().render()
    assert not re.search(r"""(src|href)=["'](?!#)""", html)
    assert "@import" not in html
    assert "url(http" not in html


def test_write_is_utf8(tmp_path):
    made = report.Report(title="größer", verdict="≥ 4×")
    made.write(tmp_path / "report.html")
    assert "≥ 4×" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_plot_is_one_well_formed_svg_that_shows_something(name):
    svg = DRAWINGS[name]()
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert len(list(root.iter())) > 30
    assert "date" not in svg.lower().split("<metadata")[-1].split("</metadata")[0]


def test_bars_are_as_long_as_their_values():
    """The widths of the drawn rectangles have the values' ratio."""
    values = [4.0, 1.0]
    rows = [(str(v), interval(v, v, v)) for v in values]
    svg = plots.interval_bars(rows, xlabel="x", highlight="1.0")
    widths = {}
    for path, color in re.findall(r'<path d="([^"]+)"[^>]*style="fill: (#\w+)', svg):
        x = [float(number) for number in re.findall(r"[ML] (\S+)", path)]
        widths[color] = max(x) - min(x)
    assert widths[plots._COLORS[0]] == pytest.approx(4 * widths[plots._COLORS[1]], rel=1e-3)
