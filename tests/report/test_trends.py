"""Pictures of metrics from run to run: `history --html`, and PerfEvaluator's bands."""

import datetime

import numpy as np
import pytest
from drawn import dots, texts, ticks

from tfx_perf.mlmd.runs import RecordedRun
from tfx_perf.report import history as history_report
from tfx_perf.report import plots

ROWS = {
    "step_time_seconds": [0.0100, 0.0101, 0.0104],
    "examples_per_second": [163_000.0, 163_200.0, 163_100.0],
    "training_memory_bytes": [1.31 * 2**30, 1.32 * 2**30, 1.31 * 2**30],
    "mfu_ratio": [0.97, 0.98, 0.99],
    "evaluation/auc": [0.8612, 0.8613, 0.8611],
    "train_loss": [0.0, 0.0, 0.0],
    "trace_count": [1.0, 1.0, 1.0],
    "memory_leak": [0.0, 0.0, 1.0],
    "global_batch_size": [40.0, 40.0, 40.0],
    "fit_time_seconds": [125.0, 126.0, 127.0],
    "input_wait_ratio": [0.0, 0.001, 0.002],
    "peak_flops_per_second": [1e12, 1.01e12, 1e12],
}
KINDS = {"blessed": "#1b7f4b"}


def trend(key, values):
    return plots.trend([(value, "blessed") for value in values], key=key, kinds=KINDS)


def banded(key, values, *, value, band, **fields):
    known = {"baseline": (float(np.mean(values)), "mean"), "noise": 0.0, "refused": False}
    return plots.trend_with_band(values, value, key=key, band=band, **{**known, **fields})


@pytest.mark.parametrize("key", ROWS)
def test_ticks_differ_from_each_other_and_the_axis_is_named(key):
    for svg in (
        trend(key, ROWS[key]),
        banded(key, ROWS[key], value=ROWS[key][-1], band=(None, 1.01 * max(ROWS[key]))),
    ):
        labels = ticks(svg)
        name = key.removeprefix("evaluation/").replace("_", " ")
        assert labels
        assert len(set(labels)) == len(labels)
        assert any(name.startswith(text) for text in texts(svg))


def test_a_change_of_four_percent_looks_small_and_one_by_half_large():
    small = dots(trend("step_time_seconds", [0.0100, 0.0104]))
    assert 0.05 < small[1] - small[0] < 0.15
    large = dots(trend("step_time_seconds", [0.0100, 0.0150]))
    assert large[1] - large[0] > 0.5


def test_an_axis_starts_at_zero_where_the_values_fill_most_of_it():
    assert ticks(trend("step_time_seconds", [0.010, 0.025]))[0] == "0 s"
    assert ticks(trend("step_time_seconds", [0.010, 0.011]))[0] != "0 s"


def test_no_axis_exceeds_possible_values():
    labels = ticks(trend("mfu_ratio", [0.97, 0.98]))
    assert max(float(label.rstrip(" %")) for label in labels) <= 100
    assert ticks(trend("memory_leak", [0.0, 1.0])) == ["no", "yes"]


def test_memory_has_ticks_at_round_numbers_of_its_unit():
    assert "1.20 GiB" in ticks(trend("training_memory_bytes", [1.25 * 2**30, 1.26 * 2**30]))


def test_the_band_is_explained_and_the_noise_is_another_one():
    values, band = [0.0100, 0.0101], (None, 0.0105)
    said = texts(banded("step_time_seconds", values, value=0.012, band=band, refused=True))
    assert {"tolerance and noise allow", "mean", "blessed runs", "this run, refused"} <= set(said)
    assert not any(text.startswith("noise:") for text in said)
    said = texts(banded("step_time_seconds", values, value=0.0101, band=band, noise=0.0002))
    assert any(text.startswith("noise:") for text in said)
    assert "this run" in said


def test_a_narrow_band_is_drawn_wide_enough_to_be_seen():
    """An AUC may fall by less than 20%: the axis goes by what is allowed."""
    labels = ticks(banded("evaluation/auc", [0.860, 0.861], value=0.86, band=(0.84, None)))
    assert min(map(float, labels)) > 0.78


def test_many_runs_do_not_write_over_each_other():
    svg = banded("step_time_seconds", [0.01] * 100, value=0.01, band=(None, 0.0105))
    assert len(ticks(svg, axis="x")) < 20


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_runs_are_counted_in_whole_numbers(count):
    svg = trend("step_time_seconds", [0.01] * count)
    assert ticks(svg, axis="x") == [str(number + 1) for number in range(count)]


def test_the_history_page_draws_each_metric_and_lists_the_runs(tmp_path):
    begun = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    runs = [
        RecordedRun(
            run_id=f"run-{index}", pipeline="taxi", created=begun, state="complete",
            metrics={"step_time_seconds": 0.01}, blessed=blessed, pushed=None,
            folders={"PerfMetrics": str(tmp_path / "metrics" / str(index))},
            plans={"training plan": "Keras fit"},
        )
        for index, blessed in enumerate([True, False, None])
    ]  # fmt: skip
    there = tmp_path / "metrics" / "1"
    there.mkdir(parents=True)
    (there / "report.html").write_text("")
    keys = ["step_time_seconds", "train_loss"]
    html = history_report.report_on(runs, keys, folder=tmp_path).render()
    assert html.count(">Keras fit<") == 3
    assert html.count("<a href") == html.count('<a href="metrics/1/report.html">Keras fit</a>') == 1
    assert html.count("<svg") == 1  # nothing is known of the loss
    assert {"blessed", "refused or revoked", "not judged", "step time"} <= set(texts(html))
    assert "begun (UTC)" in html
    assert "2026-01-02 03:04" in html
