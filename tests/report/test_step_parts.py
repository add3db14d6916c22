"""Where a slower step's time went (`step_parts`): the picture in PerfEvaluator's report."""

import datetime

import pytest
from drawn import texts

from tfx_perf.gate.decision import GateRecord
from tfx_perf.gate.run import Run
from tfx_perf.report import page, step_parts

TITLE = "Where a step&#39;s time goes"


def run(step_time_seconds, *, plan="Keras fit", **shares):
    """Returns a run whose steps took that long on average, its median being twice as fast."""
    figures = {
        "examples_per_second": 64 / step_time_seconds,
        "global_batch_size": 64,
        "step_time_seconds": step_time_seconds / 2,
        **shares,
    }
    return Run(
        run_id=f"{step_time_seconds}", time=datetime.datetime.now(datetime.timezone.utc),
        environment={}, figures=figures, plan=plan,
    )  # fmt: skip


def shown(candidate, *baseline):
    report = page.Report(title="t", verdict="v")
    record = GateRecord(
        blessed=True, headline="", outcomes=(), candidate=candidate, baseline_runs=baseline,
        differences={}, false_alarm_rate=0.02,
    )  # fmt: skip
    step_parts.add_to(report, record)
    return report.render()


def test_the_parts_are_shares_of_the_mean_step_time_and_of_the_median_run():
    candidate = run(0.0200, input_wait_ratio=0.5, python_overhead_ratio=0.2)
    known = [
        run(seconds, plan="50 steps per execution", input_wait_ratio=0.2, python_overhead_ratio=0.1)
        for seconds in (0.0090, 0.0100, 0.0300)
    ]
    html = shown(candidate, *known)
    said = texts(html)
    assert TITLE in html
    assert {"3 blessed runs, median", "50 steps per execution", "this run", "Keras fit"} <= set(
        said
    )
    # Compute, waiting, host: 7, 2 and 1 ms of the median run; 6, 10 and 4 ms of this one.
    assert {"7.00 ms", "2.00 ms", "6.00 ms", "10.0 ms", "4.00 ms"} <= set(said)
    told = "waiting for input 8.00 ms more, host (Keras, callbacks) 3.00 ms more"
    assert f"{told}, compute (the rest) 1.00 ms less" in html


@pytest.mark.parametrize("of_both", [False, True])
def test_what_is_not_known_of_both_is_in_the_rest_and_the_page_says_so(of_both):
    waits = {"input_wait_ratio": 0.5} if of_both else {}
    html = shown(
        run(0.02, python_overhead_ratio=0.1, **waits),
        run(0.01, python_overhead_ratio=0.1, input_wait_ratio=0.5),
    )
    assert ("The wait for input is not known for both runs" in html) != of_both
    assert ("waiting for input" in texts(html)) == of_both
    assert ("18.0 ms" in texts(html)) != of_both
    assert "last blessed run" in texts(html)


def test_what_replicas_wait_for_each_other_is_a_part_of_its_own():
    waits = {
        "python_overhead_ratio": 0.1,
        "communication_share_ratio": 0.2,
        "load_imbalance_ratio": 0.1,
    }
    html = shown(run(0.02, **waits), run(0.01, **waits))
    assert "waiting for other replicas 3.00 ms more" in html
    assert "waiting for other replicas" not in shown(
        run(0.02, python_overhead_ratio=0.1, replica_count=1),
        run(0.01, python_overhead_ratio=0.1, replica_count=1),
    )


def test_shares_that_are_more_than_the_whole_leave_no_rest_and_less_to_the_wait():
    html = shown(
        run(0.02, python_overhead_ratio=0.7, input_wait_ratio=0.6),
        run(0.01, python_overhead_ratio=0.1, input_wait_ratio=0.1),
    )
    assert "host (Keras, callbacks) 13.0 ms more" in html
    assert "compute (the rest) 8.00 ms less" in html
    assert "waiting for input 5.00 ms more" in html


def test_a_ledger_of_before_there_were_plans_is_no_obstacle():
    shares = {"python_overhead_ratio": 0.1}
    html = shown(run(0.02, **shares), run(0.01, plan="", **shares))
    assert "plan not recorded" in texts(html)


@pytest.mark.parametrize(
    ("candidate", "baseline"),
    [
        (run(0.02, python_overhead_ratio=0.1), []),
        (run(0.02), [run(0.01)]),
        (run(0.02, python_overhead_ratio=0.1), [run(0.01)]),
        (run(0.02, python_overhead_ratio=0.1, examples_per_second=0.0),
         [run(0.01, python_overhead_ratio=0.1)]),
    ],
)  # fmt: skip
def test_without_anything_to_split_there_is_no_picture(candidate, baseline):
    assert TITLE not in shown(candidate, *baseline)
