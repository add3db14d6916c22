"""The rules, on figures made for them."""

import pytest

from tfx_perf.input.record import CandidateOutcome
from tfx_perf.input.search import choice
from tfx_perf.input.search.final import FinalComparison
from tfx_perf.input.timing import measure
from tfx_perf.statistics import Interval

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
    return FinalComparison(
        candidate="columns", on_train_step=False, default_examples_per_second=rate,
        tuned_examples_per_second=rate, ratio=interval(low, value, high), fed_ratio=None,
        rounds=rounds,
    )  # fmt: skip


def samples(*rates):
    return [measure.Sample(examples_per_second=rate, cpu_seconds_per_example=1) for rate in rates]


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
    [(9, "(95 % interval 39 to 51)"), (3, "(range of 3 rounds 39 to 51)"), (1, "of the 3 rounds")],
)
def test_the_reason_says_what_its_interval_is(count, words):
    ratio = Interval(value=45, low=39, high=51, sample_count=count)
    found = final(39, 45, 51, rounds=count).model_copy(update={"ratio": ratio})
    assert words in choice.verdict(found, margin=0.02).reason


def test_a_variant_must_surely_beat_what_it_wraps():
    measured = {"a": samples(10, 11, 12), "a+b": samples(20, 22, 24), "a+c": samples(10, 30, 11)}
    assert choice.improvement(measured, over="a", variants=["a+b", "a+c"], margin=0.02) == "a+b"
    assert choice.improvement(measured, over="a", variants=["a+c"], margin=0.02) is None
    assert choice.improvement(measured, over="a", variants=[], margin=0.02) is None


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


def test_who_is_not_chosen_though_it_looks_faster_is_told_why():
    found = [outcome("a", 3.5, 4, 4.5, cpu=2), outcome("b", 3, 3.8, 4.6, cpu=1)]
    found.append(outcome("c", 1.5, 2, 2.5))
    told = choice.judged({each.name: each for each in found}, chosen="b+autotune", margin=0.02)
    assert [each.reason for each in told] == [
        "no faster than b beyond the noise, and takes more CPU time",
        "faster than the default, but b+autotune was chosen",
        "faster than the default, but b+autotune was chosen",
    ]
