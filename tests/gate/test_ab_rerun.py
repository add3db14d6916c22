"""The effect on a refusal of measuring in turns."""

import pytest
from gate_runs import HERE, only, run

from tfx_perf.core.statistics import Interval
from tfx_perf.gate import messages, verdict
from tfx_perf.gate.decision import AbRerun, Verdict, is_clear
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate

RULE = {"tolerance": 0.03, "max_regression": 0.1}
SLOW, FAST = "step_time_seconds", "examples_per_second"


def judged(key, ratio, *, value=1.0, samples=(0.5, 1.5, 1.0), against="r2", **rule):
    """The decision on a run whose step took between low and high times as long in turns.

    A rate is about the inverse of the step time, whose own rule is advisory.
    """
    ab_rerun = None
    if ratio:
        low, high = ratio
        interval = Interval(value=(low + high) / 2, low=low, high=high)
        ab_rerun = AbRerun(against=against, ratio=interval)
    rules, figures = {key: {**RULE, **rule}}, [{key: each} for each in (*samples, value)]
    if key == FAST:
        rules[SLOW] = {**RULE, "advisory": True}
        figures = [{FAST: each, SLOW: 2 - each} for each in samples]  # the mean stays 1
        figures.append({FAST: value, SLOW: 1 / value})
    *blessed, candidate = (
        run(f"r{number}", minute=number, **each) for number, each in enumerate(figures)
    )
    return evaluate(
        candidate, ledger=Ledger(entries=tuple(blessed)), settings=only(**rules), ab_rerun=ab_rerun
    )


@pytest.mark.parametrize(
    ("key", "ratio", "verdict"),
    [
        (SLOW, (0.97, 1.02), Verdict.PASS),
        (SLOW, (1.01, 1.09), Verdict.PASS),  # within max_regression, wherever in the interval it is
        (SLOW, (1.04, 1.06), Verdict.REGRESSION),
        (SLOW, (1.01, 1.12), Verdict.INCONCLUSIVE),
        (FAST, (0.97, 1.02), Verdict.PASS),
        (FAST, (1.04, 1.06), Verdict.REGRESSION),
        (FAST, (0.80, 0.90), Verdict.PASS),
        (FAST, (1.01, 1.12), Verdict.INCONCLUSIVE),
    ],
)
def test_the_interval_decides(key, ratio, verdict):
    assert judged(key, None).verdict is Verdict.INCONCLUSIVE
    record = judged(key, ratio)
    assert record.verdict is verdict
    assert record.blessed == (verdict is Verdict.PASS)
    outcome = record.outcomes[0]
    assert "In turns with r2 on one host, a step took" in outcome.reason
    assert outcome.reason.endswith(" So it passes.") == record.blessed
    if record.blessed:  # a refusal's line shows the figures of the comparison of runs instead
        assert f"  {outcome.reason[outcome.reason.index('In turns') :]}" in messages.lines(record)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        ((0.97, 1.02), Verdict.PASS),  # the machine was slower, not the code
        ((0.97, 1.04), Verdict.REGRESSION),  # would pass if the verdict were inconclusive
        ((1.04, 1.06), Verdict.REGRESSION),
    ],
)
def test_a_regression_passes_only_within_the_margin(ratio, verdict):
    for key, value in ((SLOW, 2.0), (FAST, 0.5)):
        found = {"value": value, "samples": (1.0, 1.0, 1.0), "max_regression": 0.05}
        assert judged(key, None, **found).verdict is Verdict.REGRESSION
        assert judged(key, None, **found).may_be_settled
        assert judged(key, ratio, **found).verdict is verdict


def test_a_pass_is_overturned_only_if_the_run_was_worse():
    assert judged(SLOW, (1.5, 1.6), samples=(1.0, 1.0, 1.0)).verdict is Verdict.PASS
    noisy = {"samples": (0.97, 1.03, 1.0, 0.98, 1.02), "value": 1.04, "max_regression": 0.5}
    for key, value in ((SLOW, 1.04), (FAST, 0.96)):
        found = {**noisy, "value": value}
        assert judged(key, None, **found).verdict is Verdict.PASS
        assert judged(key, (1.035, 1.06), **found).verdict is Verdict.REGRESSION
        assert judged(key, (1.02, 1.06), **found).verdict is Verdict.PASS


def test_a_ratio_of_medians_does_not_settle_a_mean_that_stalls_have_made_worse():
    blessed = [run(f"r{number}", minute=number, **{SLOW: 1.0, FAST: 64.0}) for number in range(6)]
    even = Interval(value=1.0, low=0.995, high=1.005)
    for of_steps in ({SLOW: RULE}, {SLOW: {**RULE, "advisory": True}}, {}):
        for slow, is_settled in ((1.0, False), (64 / 45, True)):
            found = evaluate(
                run("this", minute=9, **{SLOW: slow, FAST: 45.0}),
                ledger=Ledger(entries=tuple(blessed)),
                settings=only(**{FAST: RULE}, **of_steps),
                ab_rerun=AbRerun(against="r5", ratio=even),
            )
            assert found.blessed is is_settled


@pytest.mark.parametrize(
    ("value", "rule", "is_measured"),
    [(1.04, {}, True), (1.02, {}, False), (0.9, {}, False), (1.04, {"advisory": True}, False)],
)
def test_a_pass_beyond_the_tolerance_is_measured_again(value, rule, is_measured):
    found = judged(SLOW, None, samples=(0.97, 1.03, 1.0, 0.98, 1.02), value=value,
                   max_regression=0.5, **rule)  # fmt: skip
    assert found.blessed
    assert found.may_be_settled is is_measured


def nights(*step_times):
    return [run(f"night{number}", minute=number, step_time_seconds=each)
            for number, each in enumerate(step_times)]  # fmt: skip


def gate_of(blessed, candidate, *, code):
    """Returns the decision on a run, and which blessed runs were measured in turns with it.

    `code` has, for each run whose code is left, the candidate's step time over that of its code.
    """
    given = {"ledger": Ledger(entries=tuple(blessed)), "settings": only(**{SLOW: RULE})}
    measured = []

    def measure(runs):
        if not runs or runs[-1].run_id not in code:
            return AbRerun(reason="the code is gone")
        measured.append(runs[-1].run_id)
        ratio = code[runs[-1].run_id]
        interval = Interval(value=ratio, low=ratio - 0.01, high=ratio + 0.01)
        return AbRerun(against=runs[-1].run_id, ratio=interval)

    assert evaluate(candidate, **given).may_be_settled
    return verdict.decide(candidate, **given, measure=measure), measured


def test_a_slower_machine_is_told_from_slower_code_by_a_run_from_before():
    """After a machine has become slower for good, only the drift since the best level refuses."""
    blessed = nights(*[1.0] * 6 + [1.12] * 8)
    candidate = run("this", minute=30, step_time_seconds=1.13)
    found, measured = gate_of(blessed, candidate, code={"night5": 1.0, "night13": 1.0})
    assert (found.blessed, measured) == (True, ["night5"]), found.headline
    assert "In turns with night5 on one host, a step took 1.00 times" in found.outcomes[-1].reason
    for code in ({"night5": 1.13}, {}):  # the code was slower; the code is gone
        found, _ = gate_of(blessed, candidate, code=code)
        assert found.verdict is Verdict.REGRESSION
    # If the code of the best level is gone, the last runs may still tell.
    found, measured = gate_of(blessed, candidate, code={"night13": 0.9})
    assert (found.blessed, measured) == (True, ["night13"]), found.headline


def test_a_creeping_slowdown_is_measured_in_turns_with_a_run_from_before_it():
    """No night is slower than the tolerance beside those before it, and noise explains the sum."""
    creeping = [(1 + 0.004 * number) * (1.01, 0.99)[number % 2] for number in range(12)]
    candidate = run("this", minute=30, step_time_seconds=1.06)
    for ratio, blessed in ((1.05, False), (1.02, True), (None, True)):
        code = {"night5": ratio} if ratio else {}
        found, measured = gate_of(nights(*creeping), candidate, code=code)
        assert (found.blessed, measured) == (blessed, [*code]), found.headline


def test_only_models_of_the_candidates_size_are_measured():
    def model(number, *, size, seconds):
        environment = {**HERE, "parameter_count": f"{1e6 * size:.0f}"}
        return run(f"night{number}", minute=number, environment=environment, **{SLOW: seconds})

    blessed = [model(number, size=1.02**number, seconds=1.02**number) for number in range(8)]
    code = {f"night{number}": 1.0 for number in range(8)}
    for size, measured in ((1.02**8, ["night7"]), (0.9, [])):
        candidate = model(30, size=size, seconds=1.3 * size)
        assert gate_of(blessed, candidate, code=code)[1] == measured


def test_the_fastest_of_the_last_runs_is_measured_so_that_a_lucky_one_does_not_move_the_baseline():
    blessed = nights(0.99, 1.01, 1.0, 0.98, 1.02, 1.0, 1.01, 1.03)
    code = {f"night{number}": 1.05 for number in range(7)} | {"night7": 1.0}
    found, measured = gate_of(blessed, run("this", minute=30, step_time_seconds=1.05), code=code)
    assert measured == ["night3"]
    assert found.verdict is Verdict.REGRESSION


def test_many_small_slowdowns_are_not_settled_by_the_last_one():
    """Unless the last blessed run itself is within max_regression of the reference run."""
    crept = (1.0,) * 5 + (1.05, 1.08, 1.10)
    rule = {"max_regression": 0.05, "expected_std": 1e-4}
    for factor, samples in ((1.0, crept), (2.0, (1.0,) * 8)):
        found = {"value": factor * 1.1, "samples": samples, **rule}
        alone = judged(SLOW, None, **found)
        assert "drift" in {outcome.kind for outcome in alone.outcomes if outcome.refuses}
        evaluation = judged(SLOW, (0.999, 1.001), against=f"r{len(samples) - 1}", **found)
        verdicts = {outcome.kind: outcome.verdict for outcome in evaluation.outcomes}
        assert verdicts["change"] is Verdict.PASS
        assert verdicts["drift"] is (Verdict.REGRESSION if factor == 1 else Verdict.PASS)


def test_a_time_does_not_settle_other_figures():
    record = judged("peak_memory_bytes", (0.97, 1.02))
    assert record.verdict is Verdict.INCONCLUSIVE
    assert not record.may_be_settled
    assert judged(SLOW, None).may_be_settled


@pytest.mark.parametrize(
    ("value", "ratio", "verdict"),
    [
        (0.05, (0.97, 1.02), Verdict.PASS),  # of a step that is no longer
        (0.05, (1.05, 1.5), Verdict.INCONCLUSIVE),
        (0.9, (0.97, 1.02), Verdict.REGRESSION),
    ],
)
def test_a_share_of_a_step_that_noise_leaves_open_is_settled_by_the_step(value, ratio, verdict):
    found = {"value": value, "samples": (0.01, 0.14, 0.01, 0.15), "min_baseline": 0.2}
    alone = judged("input_wait_ratio", None, **found)
    assert not alone.blessed
    assert alone.may_be_settled == (alone.verdict is Verdict.INCONCLUSIVE)
    assert judged("input_wait_ratio", ratio, **found).verdict is verdict


@pytest.mark.parametrize(
    ("ratio", "clear"),
    [((0.9, 1.02), True), ((0.9, 1.04), False), ((1.04, 1.06), True), ((1.03, 1.04), False)],
)
def test_measuring_continues_until_the_ratio_is_on_one_side_of_the_margin(ratio, clear):
    low, high = ratio
    interval = Interval(value=(low + high) / 2, low=low, high=high)
    assert is_clear(interval, settings=only(**{SLOW: RULE})) is clear
