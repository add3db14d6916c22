"""The gate's page, Markdown and JUnit XML."""

import re
from xml.etree import ElementTree

import pytest
from gate_runs import only, run

from tfx_perf.core import metrics
from tfx_perf.gate import messages
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.report import gate as gate_report
from tfx_perf.report.gate import junit_of, markdown_of, report_on

SETTINGS = only(
    mfu_ratio={"min": 0.1}, step_time_seconds={"tolerance": 0.25}, train_loss={"tolerance": 0.1}
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


def test_the_noise_is_the_interval_of_the_change(refused):
    outcome = next(item for item in refused.outcomes if item.metric == "step_time_seconds")
    width = outcome.baseline * (outcome.change_high - outcome.change_low)
    assert gate_report._noise(outcome) == pytest.approx(width / 2)
    equal = outcome.model_copy(update={"value": outcome.baseline, "change": 0.0})
    assert gate_report._noise(equal) == 0.0


def test_a_gain_is_compared_with_the_baseline_that_the_legend_names(refused):
    gaining = refused.candidate.model_copy(update={"evaluation_gains": {"auc": 0.1}})
    record = refused.model_copy(update={"candidate": gaining})
    of_auc = refused.outcomes[0].model_copy(update={"metric": "evaluation/auc"})
    named = gate_report._baseline_in_words(of_auc, record=record)
    assert named.startswith("Evaluator's baseline")


def test_no_text_breaks_the_markdown_table(refused):
    lines = markdown_of(refused).splitlines()
    assert lines[0] == "**Refused** new \\| run"
    assert refused.headline in lines
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + len(refused.outcomes)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}
    assert "**regression**" in markdown_of(refused)


def test_the_summary_of_a_github_job_has_each_decision(refused, monkeypatch, tmp_path):
    gate_report.add_to_job_summary(refused)  # no job: nothing happens
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for _ in range(2):
        gate_report.add_to_job_summary(refused)
    assert summary.read_text() == f"{markdown_of(refused)}\n" * 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "missing" / "summary.md"))
    gate_report.add_to_job_summary(refused)  # telemetry ends no run


def test_junit_survives_characters_that_xml_cannot_hold(refused):
    odd = refused.model_copy(update={"headline": "a\x00b <&> \x1b[31m"})
    suite = ElementTree.fromstring(junit_of(odd)).find("testsuite")
    assert suite.find("testcase/failure").text == "a�b <&> �[31m"


def test_a_refusal_links_to_ways_to_let_the_run_pass(refused):
    html, text = report_on(refused).render(), markdown_of(refused)
    assert html.index("<h2>Remedies</h2>") < html.index("<h2>Checks</h2>")
    assert '<a href="refused.html">What to do about a refusal</a>' in html
    (refusal,) = [outcome for outcome in refused.outcomes if outcome.refuses]
    assert refusal.remedy.suggestion in html
    assert text.endswith(f"Remedies:\n\n- {refusal.remedy}\n")
    blessed = evaluate(refused.candidate, ledger=Ledger(), settings=SETTINGS)
    assert blessed.blessed
    assert "Remedies" not in report_on(blessed).render() + markdown_of(blessed)


def test_the_page_on_refusals_needs_no_other_file():
    html = gate_report.refused_page()
    assert "<h1>What to do about a refusal</h1>" in html
    assert "<table>" in html
    assert "<a href=" not in html
    assert "(how: docs/gate.md in tfx-perf's repository)" in html
    assert html.count("docs/") == html.count(" in tfx-perf's repository")


def test_output_for_a_script_names_no_component_nor_a_file_it_lacks():
    rules = {"fragmentation_ratio": {"max": 0.2}, "train_loss": {"max": 1.0}}
    candidate = run("new", replica_speedup_ratio=0.5, step_time_seconds=0.02)
    decision = evaluate(
        candidate.model_copy(update={"is_of_script": True}), ledger=Ledger(), settings=only(**rules)
    )
    assert len([outcome for outcome in decision.outcomes if outcome.refuses]) == 2
    said = "\n".join([report_on(decision).render(), *messages.lines(decision)])
    assert "May this run count as good?" in said
    assert "The script's training recorded no finite value" in said
    assert "the training's report says why" in said
    for name in (*{each.component for each in metrics.CATALOGUE.values()}, "refused.html"):
        assert name not in said


def test_a_figure_of_only_the_last_process_is_not_in_the_trend(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        gate_report.plots, "trend_with_band", lambda values, *_, **__: drawn.append(values) or ""
    )
    runs = [run(f"r{i}", minute=i, energy_joules=5.0 + i / 10) for i in range(4)]
    runs[2] = run("resumed", minute=2, energy_joules=1.0, resumed_step=100)
    candidate = run("new", energy_joules=5.2)
    rules = only(energy_joules={"tolerance": 0.25})
    report_on(evaluate(candidate, ledger=Ledger(entries=tuple(runs)), settings=rules)).render()
    assert drawn == [[5.0, 5.1, 5.3]]
