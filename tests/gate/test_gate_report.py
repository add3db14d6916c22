"""The gate's page."""

import re

from gate_runs import ELSEWHERE, only, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.report.gate_report import report_on

SETTINGS = only(
    mfu_ratio={"min": 0.1}, step_time_seconds={"margin": 0.25}, train_loss={"margin": 0.1}
)


def test_the_page_leads_with_the_decision_and_draws_a_trend_for_each_compared_metric():
    runs = [run(f"r{i}", step_time_seconds=0.010 + i / 1e4, mfu_ratio=0.2) for i in range(4)]
    candidate = run("new", step_time_seconds=0.020, mfu_ratio=0.2, train_loss=0.5)
    record = evaluate(candidate, ledger=Ledger(entries=runs), settings=SETTINGS)
    html = report_on(record).render()
    assert not record.blessed
    assert html.index("Refused by 1 of 3 checks") < html.index("<table>")
    assert html.count("<svg") == 2  # no blessed run has a train_loss
    for text in ("20.0 ms", "+97.0%", "20.0 %", "regression", "not compared", "global_batch_size"):
        assert text in html
    assert not re.search(r"(src|href)=.http|<script|<link", html)  # opens without a network


def test_the_page_of_a_run_that_nothing_is_comparable_with_shows_the_differences():
    ledger = Ledger(entries=(run("a", environment=ELSEWHERE, step_time_seconds=1.0),))
    candidate = run("b", step_time_seconds=1.0, mfu_ratio=0.2, train_loss=0.5)
    html = report_on(evaluate(candidate, ledger=ledger, settings=SETTINGS)).render()
    assert "Why nothing was compared" in html
    assert "A100" in html
    assert "<svg" not in html
