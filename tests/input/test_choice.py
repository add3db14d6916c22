"""The rules, on figures made for them: what is chosen, and what a search may cost."""

import math
import time

import pytest

from tfx_perf.config import ScheduleSettings
from tfx_perf.core.statistics import Interval
from tfx_perf.input import choice, measure
from tfx_perf.input.budget import Gain, TimeBudget
from tfx_perf.input.diagnosis import judge
from tfx_perf.input.record import CandidateOutcome, Confirmation

pytestmark = pytest.mark.each_choice


def interval(low, value, high):
    return Interval(value=value, low=low, high=high)


def outcome(name, low, value, high, *, cpu=1.0):
    return CandidateOutcome(
        name=name, description="", status="measured", ratio=interval(low, value, high),
        examples_per_second=interval(1, 1, 1), cpu_seconds_per_example=cpu,
    )  # fmt: skip


def final(low, value, high, *, rounds=5):
    rate = interval(1, 1, 1)
    return Confirmation(
        candidate="columns", on_train_step=False, default_examples_per_second=rate,
        tuned_examples_per_second=rate, ratio=interval(low, value, high), fed_ratio=None,
        rounds=rounds,
    )  # fmt: skip


def test_the_fastest_is_best():
    found = [outcome("a", 1.5, 2, 2.5), outcome("b", 3, 4, 5)]
    assert choice.best_of(found, margin=0.02).name == "b"


def test_of_those_as_fast_the_one_that_takes_the_least_cpu_time():
    found = [outcome("a", 3.5, 4, 4.5, cpu=2), outcome("b", 3, 3.8, 4.6, cpu=1)]
    assert choice.best_of(found, margin=0.02).name == "b"


def test_none_is_surely_faster():
    assert choice.best_of([outcome("a", 1.01, 2, 3)], margin=0.02) is None
    assert choice.best_of([], margin=0.02) is None


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        (final(1.03, 2, 3), "columns"),
        (final(1.02, 2, 3), "default"),
        (final(0.5, 0.9, 1.1), "default"),
        (final(1.5, 2, 3, rounds=2), "default"),
        (final(39, 45, 51, rounds=2), "columns"),
        (final(45, 45, 45, rounds=1), "default"),
    ],
)
def test_the_default_stays_unless_the_whole_interval_is_above(found, chosen):
    made = choice.verdict(found, margin=0.02)
    assert made.name == chosen
    assert (chosen == "default") == ("default stays" in made.reason)


@pytest.mark.parametrize(
    ("count", "words"),
    [(9, "(95% interval 39 to 51)"), (3, "(range of 3 rounds 39 to 51)"), (1, "of the 3 rounds")],
)
def test_the_reason_names_its_interval_correctly(count, words):
    ratio = Interval(value=45, low=39, high=51, sample_count=count)
    found = final(39, 45, 51, rounds=count).model_copy(update={"ratio": ratio})
    assert words in choice.verdict(found, margin=0.02).reason


def test_every_outcome_says_why():
    outcomes = {
        "default": outcome("default", 1, 1, 1),
        "a": outcome("a", 3, 4, 5),
        "b": outcome("b", 2, 2.5, 3),
        "c": outcome("c", 0.5, 0.6, 0.7),
        "d": CandidateOutcome(name="d", description="", status="dropped", reason="too large"),
        "e": CandidateOutcome(name="e", description="", status="measured"),
    }
    found = choice.judged(outcomes, chosen="a", margin=0.02)
    assert [item.status for item in found] == [
        "measured", "chosen", "measured", "measured", "dropped", "measured",
    ]  # fmt: skip
    assert [bool(item.reason) for item in found] == [True, False, True, True, True, True]
    default_wins = choice.judged(outcomes, chosen="default", margin=0.02)
    assert "not proven" in default_wins[1].reason


def test_a_candidate_that_looks_faster_gets_a_reason_for_not_being_chosen():
    name = "b+autotune"
    found = [
        outcome("a", 3.5, 4, 4.5, cpu=2), outcome("b", 1.4, 1.5, 1.6),
        outcome(name, 3, 3.8, 4.6, cpu=1), outcome("c", 1.5, 2, 2.5),
    ]  # fmt: skip
    told = choice.judged({each.name: each for each in found}, chosen=name, margin=0.02)
    assert [each.reason for each in told] == [
        "no faster than b+autotune beyond the noise, and takes more CPU time",
        "faster than the default, but b+autotune was chosen",
        "",
        "faster than the default, but b+autotune was chosen",
    ]


def diagnosis(**rates):
    return judge({name: [measure.Sample(rate, 0.0)] * 5 for name, rate in rates.items()})


def test_it_is_what_training_takes_beyond_a_free_input():
    found = diagnosis(pipeline=110, train=400, together=100)
    assert Gain(1000).possible_seconds(found) == pytest.approx(10 - 2.5)
    assert Gain(math.inf).possible_seconds(found) == math.inf


def test_it_is_not_more_than_reading_takes():
    alone = diagnosis(pipeline=100)
    assert Gain(1000).possible_seconds(alone) == 10
    assert Gain(math.inf).possible_seconds(alone) == math.inf
    said = Gain(1000).too_little(alone, search_seconds=12)
    assert said.startswith("Reading takes about 10.0 s with the default, of which no input can")


def test_of_several_runs_it_says_that_the_time_is_of_all():
    """A pass over the data is part of what a faster input takes."""
    alone = diagnosis(pipeline=100)
    gain = Gain(4000, expected_runs=4, preparation_seconds=1, split_example_count=300)
    assert gain.possible_seconds(alone) == 40 - 4 * (1 + 3)
    said = gain.too_little(alone, search_seconds=100)
    assert said.startswith("Reading takes about 40.0 s in 4 runs with the default, of which")


def test_what_every_training_takes_to_prepare_is_no_gain():
    alone = diagnosis(pipeline=100)
    gain = Gain(4000, expected_runs=4, preparation_seconds=3)
    assert gain.possible_seconds(alone) == 40 - 12
    assert "schedule.expected_runs: 5." in gain.too_little(alone, search_seconds=29)
    nothing = Gain(1000, preparation_seconds=11)
    assert nothing.possible_seconds(alone) == 0
    said = nothing.too_little(alone, search_seconds=1)
    assert "takes about 11.0 s a run, more than it can save" in said


def test_there_is_none_where_training_is_fed():
    fed = diagnosis(pipeline=900, train=100, together=100)
    endless = Gain(math.inf)
    assert endless.possible_seconds(fed) == 0
    assert "Reading does not slow training" in endless.too_little(fed, search_seconds=9)


def test_one_round_does_not_say_that_training_is_fed():
    one = judge(
        {
            name: [measure.Sample(rate, 0.0)]
            for name, rate in {"pipeline": 110, "train": 97, "together": 100}.items()
        }
    )
    said = Gain(1000).too_little(one, search_seconds=12)
    assert "Reading does not slow training" not in said
    assert "schedule.expected_runs" in said


def test_the_reason_says_how_long_everything_takes():
    said = Gain(1000).too_little(
        diagnosis(pipeline=110, train=400, together=100), search_seconds=12
    )
    assert "about 10.0 s with the default" in said
    assert "more than 7.50 s: too little for a search of about 12.0 s" in said
    assert said.endswith("A search would pay off with schedule.expected_runs: 2.")


def test_the_reason_says_how_many_runs_are_enough():
    alone = diagnosis(pipeline=100)
    said = Gain(1000, expected_runs=4).too_little(alone, search_seconds=21)
    assert "schedule.expected_runs: 9." in said
    assert Gain(1000 * 9 / 4).possible_seconds(alone) > 21


def test_the_nth_run_expects_n_more_runs():
    assert ScheduleSettings().run_count(runs_before=0) == 1
    assert ScheduleSettings().run_count(runs_before=7) == 8
    assert ScheduleSettings().run_count(runs_before=7, is_pipeline=True) == 9
    assert ScheduleSettings(expected_runs=3).run_count(runs_before=7) == 3


def test_a_phase_gets_a_share_of_the_remaining_time():
    budget = TimeBudget(1000)
    assert budget.left_seconds == pytest.approx(860, abs=0.5)  # the rest is for what follows
    budget.limit(68)
    assert budget.left_seconds == pytest.approx(68, abs=0.5)
    assert budget.until(0.5) - time.monotonic() == pytest.approx(34, abs=0.5)
    budget.limit(500)  # more than there is
    assert budget.left_seconds == pytest.approx(68, abs=0.5)
    assert budget.elapsed_seconds < 1
    assert TimeBudget(20, spent_seconds=30).left_seconds == 0


def rounds(**rates):
    """Returns samples of equal CPU time by name."""
    return {name: [measure.Sample(rate, 1.0) for rate in each] for name, each in rates.items()}


@pytest.mark.parametrize(
    ("samples", "is_decided"),
    [
        (rounds(default=[10, 11, 10], columns=[15, 15, 14]), True),
        (rounds(default=[10, 11, 10], columns=[15, 15, 14], blocks=[14, 15, 14]), False),
        (rounds(default=[10, 11, 10], columns=[5, 5, 4]), True),
        (rounds(default=[10], columns=[15]), False),
        (rounds(default=[10], columns=[25]), True),
        (rounds(default=[10], columns=[25], blocks=[24]), False),
        (rounds(default=[10], columns=[4]), False),  # the default has to be sure of its place
    ],
)
def test_rounds_end_once_one_is_surely_the_fastest(samples, is_decided):
    assert choice.is_decided(samples) == is_decided
