"""What a faster input can still bring, and what a budget makes of it."""

import math
import time

import pytest

from tfx_perf.config import ScheduleSettings
from tfx_perf.input.diagnosis import diagnose
from tfx_perf.input.search import gain, time_budget
from tfx_perf.input.timing import measure


def diagnosis(**rates):
    return diagnose.judge(
        {name: [measure.Sample(rate, 0.0)] * 5 for name, rate in rates.items()}
    )


def test_it_is_what_training_takes_beyond_a_free_input():
    found = diagnosis(pipeline=110, train=400, together=100)
    assert gain.Gain(1000).possible_seconds(found) == pytest.approx(10 - 2.5)
    assert gain.Gain(math.inf).possible_seconds(found) == math.inf


def test_it_is_not_more_than_reading_takes():
    alone = diagnosis(pipeline=100)
    assert gain.Gain(1000).possible_seconds(alone) == 10
    assert gain.Gain(math.inf).possible_seconds(alone) == math.inf
    said = gain.Gain(1000).too_little(alone, search_seconds=12)
    assert said.startswith("Reading takes about 10.0 s with the default, and no input can save")


def test_there_is_none_where_training_is_fed():
    fed = diagnosis(pipeline=900, train=100, together=100)
    endless = gain.Gain(math.inf)
    assert endless.possible_seconds(fed) == 0
    assert "as fast as if its input cost nothing" in endless.too_little(fed, search_seconds=9)


def test_the_reason_says_how_long_everything_takes():
    said = gain.Gain(1000).too_little(
        diagnosis(pipeline=110, train=400, together=100), search_seconds=12
    )
    assert "about 10.0 s with the default" in said
    assert "more than 7.50 s: too little for a search of about 12.0 s" in said
    assert said.endswith("With schedule.planned_runs: 2 there would be one.")


def test_the_reason_says_how_many_runs_are_enough():
    alone = diagnosis(pipeline=100)
    said = gain.Gain(1000, planned_runs=4).too_little(alone, search_seconds=21)
    assert "schedule.planned_runs: 9 " in said
    assert gain.Gain(1000 * 9 / 4).possible_seconds(alone) > 21


def test_what_is_run_for_the_nth_time_will_run_n_times_more():
    assert ScheduleSettings().run_count(runs_before=0) == 1
    assert ScheduleSettings().run_count(runs_before=7) == 8
    assert ScheduleSettings(planned_runs=3).run_count(runs_before=7) == 3


def test_a_limit_leaves_the_phases_their_shares():
    budget = time_budget.TimeBudget(1000)
    budget.limit(68, reached=0.32)
    assert budget.left(0.32) == 0
    assert budget.left(0.66) == pytest.approx(34, abs=0.5)
    assert budget.left(1.0) == pytest.approx(68, abs=0.5)
    assert budget.elapsed_seconds < 1
    before = budget.until(1.0)
    budget.limit(500, reached=0.5)  # more than there is
    assert budget.until(1.0) == before
    assert before < time.monotonic() + 68
