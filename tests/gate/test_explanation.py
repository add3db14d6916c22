"""What the terminal says of a decision."""

import pytest
from gate_runs import ledger_of, only, run

from tfx_perf.gate import explanation
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate

KEY = "step_time_seconds"


def test_a_blessed_run_shows_its_figures_and_their_changes():
    decision = evaluate(
        run("new", **{KEY: 0.0102}, train_loss=0.25, cost_per_million_examples=0.125),
        ledger=ledger_of(KEY, [0.01, 0.01]),
        settings=only(**{KEY: {"margin": 0.1}}),
    )
    assert list(explanation.lines(decision)) == [
        "Blessed: 1 of 1 check made, none refused. Compared with 2 blessed runs: a figure with "
        "their mean at its present level, a counter with the last.",
        "  step time 10.2 ms (+2.0 %), train loss 0.25, cost per million examples 0.125",
    ]


def test_a_refused_run_shows_each_reason_once_and_what_to_do():
    decision = evaluate(
        run("new", **{KEY: 0.02}, mfu_ratio=0.05),
        ledger=ledger_of(KEY, [0.01, 0.01]),
        settings=only(**{KEY: {"margin": 0.1}, "mfu_ratio": {"min": 0.1}}),
    )
    first, figures, remedy, second, other, bless = explanation.lines(decision)
    assert first == decision.headline
    assert figures == "  step time 20.0 ms (+100.0 %)"
    assert remedy == f"  What to do: {decision.outcomes[0].remedy}"
    assert second == "  mfu_ratio (limit): 5.00 % is below the minimum 10.0 %."
    assert other.startswith("  What to do: gate.rules.mfu_ratio.min is 0.1: 0.05 would let")
    assert bless.endswith("tfx-perf bless new --reason TEXT --metadata DB")


@pytest.mark.parametrize(("speedup", "lines"), [(0.71, 1), (0.95, 0), (1.8, 0), (None, 0)])
def test_replicas_that_are_slower_than_one_are_said_in_a_line(speedup, lines):
    figures = {} if speedup is None else {"replica_speedup_ratio": speedup}
    decision = evaluate(
        run("new", **{KEY: 0.01}, **figures), ledger=Ledger(), settings=only(**{KEY: {"max": 1.0}})
    )
    said = [line for line in explanation.lines(decision) if "on one replica" in line]
    assert len(said) == lines
    assert not said or said[0].startswith("  0.71 times as fast as the last run on one replica:")


def test_of_many_refusals_the_report_has_the_rest():
    keys = [KEY, "mfu_ratio", "examples_per_second", "train_loss", "compile_time_seconds",
            "fit_time_seconds", "setup_time_seconds"]  # fmt: skip
    decision = evaluate(
        run("new", mfu_ratio=0.05),
        ledger=Ledger(),
        settings=only(**{key: {"min": 0.1} for key in keys}),
    )
    lines = list(explanation.lines(decision))
    assert sum(line.startswith("  What to do: ") for line in lines) == 5
    assert "  and 2 more, see the report" in lines


@pytest.mark.parametrize(
    ("key", "baseline", "value", "rule", "words"),
    [
        ("training_memory_bytes", 100.0 * 2**20, 112.0 * 2**20, {"margin": 0.05, "scale": 2**31},
         "(+12.0 %)"),
        ("train_loss", 0.01, 1.3, {"margin": 0.05, "scale": 0.1}, "(130.0 times)"),
        ("train_loss", -0.15, 0.3, {"margin": 0.05}, "(+300.0 %)"),
    ],
)  # fmt: skip
def test_a_change_is_a_share_of_the_baseline_whatever_it_counts_by(
    key, baseline, value, rule, words
):
    decision = evaluate(
        run("new", **{key: value}), ledger=ledger_of(key, [baseline] * 3),
        settings=only(**{key: rule}),
    )  # fmt: skip
    assert words in list(explanation.lines(decision))[1]
    assert "times the baseline -" not in decision.outcomes[0].reason


def test_a_rate_does_not_fall_by_more_than_all_of_it():
    decision = evaluate(
        run("new", examples_per_second=7.0),
        ledger=ledger_of("examples_per_second", [100.0, 150.0]),
        settings=only(examples_per_second={"margin": 0.05}),
    )
    found = decision.outcomes[0].from_baseline
    assert -1 <= found.low <= found.value <= found.high
