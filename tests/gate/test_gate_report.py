"""The gate's page, Markdown and JUnit XML."""

import re
from xml.etree import ElementTree

import pytest
from gate_runs import ELSEWHERE, only, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.report.gate_junit import junit_of
from tfx_perf.report.gate_markdown import markdown_of
from tfx_perf.report.gate_report import report_on

SETTINGS = only(
    mfu_ratio={"min": 0.1}, step_time_seconds={"margin": 0.25}, train_loss={"margin": 0.1}
)


@pytest.fixture
def refused():
    """The decision on a run that is twice as slow as the blessed ones."""
    times = [0.01, 0.02, 0.03]
    runs = [
        run(f"r{i}", minute=i, step_times=times, step_time_seconds=0.010 + i / 1e4, mfu_ratio=0.2)
        for i in range(4)
    ]
    candidate = run(
        "new | run", step_times=times, step_time_seconds=0.020, mfu_ratio=0.2, train_loss=0.5
    )
    return evaluate(candidate, ledger=Ledger(entries=tuple(runs)), settings=SETTINGS)


def test_the_page_leads_with_the_decision_and_draws_trends_and_step_times(refused):
    html = report_on(refused).render()
    assert not refused.blessed
    assert html.index("Refused by 1 of 3 checks") < html.index("<table>")
    assert html.count("<svg") == 2  # no blessed run has a train_loss; and the step times
    for text in ("20.0 ms", "+97.0 %", "20.0 %", "regression", "not compared", "global_batch_size",
                 "smallest detectable change", "≤ "):  # fmt: skip
        assert text in html
    assert not re.search(r"(src|href)=.http|<script|<link", html)  # opens without a network


def test_what_refuses_stands_first_in_the_table(refused):
    html = report_on(refused).render()
    assert html.index("<td>step_time_seconds") < html.index("<td>mfu_ratio")


def test_the_page_of_a_run_that_nothing_is_comparable_with_shows_the_differences():
    ledger = Ledger(entries=(run("a", environment=ELSEWHERE, step_time_seconds=1.0),))
    candidate = run("b", step_time_seconds=1.0, mfu_ratio=0.2, train_loss=0.5)
    html = report_on(evaluate(candidate, ledger=ledger, settings=SETTINGS)).render()
    assert html.index("Not comparable with any blessed run") < html.index("<table>")
    assert "Why nothing was compared" in html
    assert "A100" in html
    assert "<svg" not in html


def test_markdown_is_one_table_that_no_text_breaks(refused):
    lines = markdown_of(refused).splitlines()
    assert lines[0] == "**Refused** new \\| run"
    assert refused.headline in lines
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + len(refused.outcomes)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}
    assert "**regression**" in markdown_of(refused)


def test_junit_has_a_case_for_each_check_and_fails_what_refuses(refused):
    suite = ElementTree.fromstring(junit_of(refused)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    failed = [case.get("name") for case in suite.findall("testcase[failure]")]
    assert failed == ["decision", "step_time_seconds change"]
    assert suite.find("testcase/failure").text == refused.headline


def test_junit_survives_what_xml_cannot_hold(refused):
    odd = refused.model_copy(update={"headline": "a\x00b <&> \x1b[31m"})
    suite = ElementTree.fromstring(junit_of(odd)).find("testsuite")
    assert suite.find("testcase/failure").text == "a�b <&> �[31m"
