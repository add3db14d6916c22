"""A figure compared with the blessed runs: around its bounds, and beside the step time."""

import numpy as np
import pytest
from gate_runs import blessed_by_a_person, ledger_of, noisy, only, run

from tfx_perf.config.gate import GateSettings
from tfx_perf.core import metrics
from tfx_perf.gate.decision import Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate

SLOW = "step_time_seconds"  # lower is better
FAST = "examples_per_second"  # higher is better
MEMORY = "xla_peak_bytes"  # planned, not measured


def judge(key, value, baseline, **rule):
    settings = only(**{key: rule})
    ledger = ledger_of(key, baseline)
    record = evaluate(run("new", **{key: value}), ledger=ledger, settings=settings)
    return record.outcomes[0]


@pytest.mark.parametrize(("key", "sign"), [(SLOW, 1), (FAST, -1)])
def test_the_allowed_bound_is_the_bound(key, sign):
    baseline = noisy(8, sd=0.03)
    found = judge(key, 1.0, baseline, tolerance=0.03, max_regression=0.5)
    bound = found.highest if sign > 0 else found.lowest
    assert sign * (bound - found.baseline) > 0.04 * found.baseline  # noise, not the tolerance
    inside = judge(key, bound * (1 - sign * 1e-6), baseline, tolerance=0.03, max_regression=0.5)
    outside = judge(key, bound * (1 + sign * 1e-6), baseline, tolerance=0.03, max_regression=0.5)
    assert (inside.verdict, outside.verdict) == (Verdict.PASS, Verdict.REGRESSION)
    assert "noise explains" in inside.reason


def short(value):
    """Returns a run whose own error is 5% of its step time."""
    return run("short", step_time_seconds=value, step_time_median_error_ratio=0.05)


def test_the_bound_and_the_detectable_change_do_not_depend_on_the_run():
    settings = only(step_time_seconds={"tolerance": 0.03, "max_regression": 9.0})
    ledger = ledger_of(SLOW, noisy(8, sd=0.01))

    def judged(value):
        return evaluate(short(value), ledger=ledger, settings=settings).outcomes[0]

    found = judged(1.0)
    for value in (1.2, 3.0, 20.0):
        bounds = judged(value).highest, judged(value).detectable
        assert bounds == pytest.approx((found.highest, found.detectable))
    verdicts = [judged(found.highest * factor).verdict for factor in (1 - 1e-6, 1 + 1e-6)]
    assert verdicts == [Verdict.PASS, Verdict.REGRESSION]
    detectable = found.baseline * (1 + found.detectable)
    error = np.hypot(0.05 * detectable, 0.01 * found.baseline)
    draws = np.random.default_rng(0).normal(detectable, error, size=20_000)
    assert np.mean(draws > found.highest) == pytest.approx(0.8, abs=0.02)


def test_nothing_is_detectable_if_the_error_grows_with_the_figure():
    settings = only(step_time_seconds={"tolerance": 0.03, "max_regression": 9.0})
    candidate = run("short", step_time_seconds=9.0, step_time_median_error_ratio=0.9)
    found = evaluate(candidate, ledger=ledger_of(SLOW, [1.0] * 8), settings=settings).outcomes[0]
    assert (found.highest, found.detectable) == (None, None)


def test_no_rate_can_fall_by_more_than_100_percent():
    found = judge(FAST, 0.9, (0.3, 1.0, 1.7), tolerance=0.03)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.change_low == -1.0
    assert "may be 100.0% worse" in found.reason


def test_eight_equal_runs_do_not_make_a_tiny_change_a_regression():
    assert judge(SLOW, 1.0299, [1.0] * 8, tolerance=0.03).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("value", "tolerance", "verdict"),
    [(100.0, 0.0, Verdict.PASS), (101.0, 0.0, Verdict.REGRESSION), (90.0, 0.0, Verdict.PASS),
     (105.0, 0.05, Verdict.PASS), (105.1, 0.05, Verdict.REGRESSION)],
)  # fmt: skip
def test_deterministic_counters_are_compared_exactly_with_the_last_run(value, tolerance, verdict):
    found = judge(MEMORY, value, [500.0, 100.0], tolerance=tolerance, max_regression=10.0)
    assert found.verdict is verdict
    assert found.baseline == 100.0
    assert found.change_low == found.change_high == found.change


def test_a_baseline_of_zero_has_no_ratio_but_still_a_direction():
    found = judge("input_wait_ratio", 0.01, [0.0], tolerance=0.5)
    assert found.verdict is Verdict.REGRESSION
    assert found.change is None
    assert judge("input_wait_ratio", 0.0, [0.0], tolerance=0.5).verdict is Verdict.PASS


def test_a_negative_loss_gets_worse_as_it_rises():
    assert judge("train_loss", -9.6, [-10.0] * 8, tolerance=0.05).verdict is Verdict.PASS
    assert judge("train_loss", -9.4, [-10.0] * 8, tolerance=0.05).verdict is Verdict.REGRESSION


def judge_loss(value, before, *, code="1", rule=None, is_of_script=False):
    """Returns the answer on a loss of a run with this code; the blessed ones had code 1."""

    def trained(name, loss, *, code, minute):
        made = run(name, minute, train_loss=loss, train_step_count=2000.0)
        conditions = {"code": code} if code else {"training": "1"}
        return made.model_copy(update={"conditions": conditions, "is_of_script": is_of_script})

    ledger = Ledger(
        entries=tuple(
            trained(f"r{place}", loss, code="1", minute=place) for place, loss in enumerate(before)
        )
    )
    candidate = trained("new", value, code=code, minute=100)
    settings = only(train_loss=rule or {"tolerance": 0.05, "min_baseline": 0.1})
    return evaluate(candidate, ledger=ledger, settings=settings)


@pytest.mark.parametrize("before", [[0.226], [0.2, 0.25, 0.23, 0.224]])
def test_a_loss_without_a_seed_may_vary_until_five_runs_show_how_much(before):
    found = judge_loss(0.2948, before).outcomes[0]
    assert (found.verdict, found.refuses) == (Verdict.PASS, False)
    assert found.reason.endswith("which unchanged code and settings explain.")
    assert found.highest == pytest.approx(1.4 * 0.226, rel=0.01)
    assert judge_loss(0.33, before).outcomes[0].verdict is Verdict.REGRESSION


@pytest.mark.parametrize(
    "case",
    [{"code": "2"}, {"code": ""}, {"before": [0.226] * 5}, {"is_of_script": True},
     {"rule": {"tolerance": 0.05, "max_regression": 0.2}}],
)  # fmt: skip
def test_other_code_more_runs_or_a_wish_for_certainty_end_that(case):
    found = judge_loss(0.2948, **{"before": [0.226], **case})
    assert found.outcomes[0].verdict is Verdict.REGRESSION


def test_a_refused_loss_tells_what_changed_and_what_makes_it_repeat():
    found = judge_loss(0.5, [0.226])
    assert "Unchanged since blessed run r0: the code." in found.headline
    assert "if it is chance, set training.seed" in found.outcomes[0].remedy.suggestion


def test_a_refused_step_time_is_shown_beside_its_cpu_time():
    before, after = (
        run(name, step_time_seconds=step, step_cpu_time_seconds=cpu)
        for name, step, cpu in (("r0", 1.0e-3, 2.0e-3), ("new", 1.5e-3, 2.02e-3))
    )
    settings = only(step_time_seconds={"tolerance": 0.03})
    headline = evaluate(after, ledger=Ledger(entries=(before,)), settings=settings).headline
    assert "A step took 2.02 ms of CPU time, in blessed run r0 2.00 ms." in headline


TIME_AND_RATE = only(
    step_time_seconds={"tolerance": 0.03}, examples_per_second={"tolerance": 0.03, "optional": True}
)


@pytest.mark.parametrize(
    ("step_time_seconds", "examples_per_second", "error_ratio", "verdicts"),
    [
        # A stall alone does not cause a refusal.
        (1.0, 100.0, 0.3, (Verdict.PASS, Verdict.PASS)),
        (1.0, 80.0, 0.3, (Verdict.PASS, Verdict.SKIPPED)),
        (1.0, 50.0, 0.3, (Verdict.PASS, Verdict.SKIPPED)),
        # A slower median still does, and a long training is also judged by its mean.
        (1.3, 77.0, 0.3, (Verdict.REGRESSION, Verdict.INCONCLUSIVE)),
        (1.0, 80.0, 0.01, (Verdict.PASS, Verdict.REGRESSION)),
    ],
)
def test_a_short_training_is_judged_by_its_median(
    step_time_seconds, examples_per_second, error_ratio, verdicts
):
    before = run("old", step_time_seconds=1.0, examples_per_second=100.0)
    decision = evaluate(
        run("new", step_time_seconds=step_time_seconds, step_time_error_ratio=error_ratio,
            examples_per_second=examples_per_second),
        ledger=Ledger(entries=(before,)),
        settings=TIME_AND_RATE,
    )  # fmt: skip
    step, rate = decision.outcomes
    assert (step.verdict, rate.verdict) == verdicts
    assert decision.blessed is (rate.verdict in (Verdict.PASS, Verdict.SKIPPED))
    if rate.verdict is Verdict.SKIPPED:
        assert "uncertain by 30.0%" in rate.reason


def test_noise_between_runs_stays_inconclusive():
    settings = only(
        step_time_seconds={"tolerance": 0.3},
        examples_per_second={"tolerance": 0.03, "expected_std": 0.2, "optional": True},
    )
    before = run("old", step_time_seconds=1.0, examples_per_second=100.0)
    decision = evaluate(
        run("new", step_time_seconds=1.0, examples_per_second=95.0, step_time_error_ratio=0.01),
        ledger=Ledger(entries=(before,)),
        settings=settings,
    )
    verdicts = {outcome.metric: outcome.verdict for outcome in decision.outcomes}
    assert verdicts["examples_per_second"] is Verdict.INCONCLUSIVE


STEP, RATE, MFU = "step_time_seconds", "examples_per_second", "mfu_ratio"
OF_A_STEP = only(**{STEP: {"tolerance": 0.03}, RATE: {"tolerance": 0.03}, MFU: {"tolerance": 0.03}})


def of(steps, rates, *, mfus=None):
    """Returns a ledger with a run for each pair, oldest first."""
    entries = []
    for index, (step, rate) in enumerate(zip(steps, rates, strict=True)):
        figures = {STEP: step, RATE: rate}
        if mfus and mfus[index] is not None:
            figures[MFU] = mfus[index]
        entries.append(run(f"r{index}", minute=index, **figures))
    return Ledger(entries=tuple(entries))


def baselines(ledger, **figures):
    """Returns the baseline of each figure of a new run."""
    decision = evaluate(run("new", minute=90, **figures), ledger=ledger, settings=OF_A_STEP)
    compared = [item for item in decision.outcomes if item.kind == "change"]
    return {item.metric: item.baseline for item in compared if item.metric in figures}


@pytest.mark.parametrize(
    ("steps", "rates", "since"),
    [
        # The rate is too noisy to show the change that the median shows, or vice versa.
        ([1.0, 1.0, 0.8, 0.8], [80.0, 120.0, 115.0, 125.0], slice(2, 4)),
        ([1.0, 1.0, 1.0, 1.0], [50.0, 50.0, 100.0, 100.0], slice(2, 4)),
        # Each shows its own change: the runs after both count.
        ([1.0, 0.5, 0.5, 0.5, 0.5], [100.0, 100.0, 100.0, 200.0, 200.0], slice(3, 5)),
        # By its median the new run is nearer to the first three runs, by its rate to the last.
        ([1.0, 1.0, 1.0, 0.5], [100.0, 100.0, 100.0, 200.0], slice(0, 3)),
        ([1.0, 1.0, 1.0, 1.0], [100.0, 101.0, 99.0, 100.0], slice(0, 4)),
    ],
)
def test_both_are_compared_with_the_runs_since_the_last_change_of_either(steps, rates, since):
    found = baselines(of(steps, rates), **{STEP: 0.9 * max(steps), RATE: max(rates)})
    expected = {STEP: np.mean(steps[since]), RATE: np.mean(rates[since])}
    assert found == pytest.approx(expected)


def test_a_figure_missing_in_those_runs_is_compared_with_the_runs_that_have_it():
    ledger = of([1.0, 1.0, 0.5], [100.0, 100.0, 200.0], mfus=[0.03, 0.0302, None])
    found = baselines(ledger, **{STEP: 0.5, RATE: 200.0, MFU: 0.05})
    assert found == pytest.approx({STEP: 0.5, RATE: 200.0, MFU: 0.0301})


# Step time in milliseconds, time that stalls add to the mean, and wait of the replicas.
STRATEGIES = {
    "one_device": (1.0, 0.01, None),
    "MirroredStrategy": (1.6, 0.02, 0.2),
    "MultiWorkerMirroredStrategy": (4.0, 0.6, 0.45),
}
ALONE, MIRRORED, WORKERS = STRATEGIES


def trained(random, strategy, *, minute, faster=1.0):
    milliseconds, stalls, waits = STRATEGIES[strategy]
    step = 1e-3 * milliseconds * faster * (1 + 0.01 * random.normal())
    mean = step * (1 + stalls) * (1 + 0.02 * abs(random.normal()))
    shares = {}
    if waits:
        share = waits * (1 + 0.1 * random.uniform(-1, 1)) / faster
        shares = {"communication_share_ratio": min(1.0, share)}
    return run(
        f"run {minute}",
        minute=minute,
        environment={"device_kind": "CPU", "strategy": strategy, "global_batch_size": "64"},
        step_time_error_ratio=0.01,
        training_memory_bytes=5e8,
        train_step_count=2000.0,
        train_loss=0.5 * (1 + 0.005 * random.normal()),
        trace_count=1.0,
        **{STEP: step, RATE: 64 / mean},
        **shares,
    )


@pytest.mark.parametrize(
    "history",
    [
        [(ALONE, 1.0)] * 3 + [(MIRRORED, 1.0)] * 2 + [(WORKERS, 1.0)] * 2 + [(ALONE, 1.0)] * 2,
        # The first run under each strategy has no plan yet.
        [(ALONE, 2.0), (ALONE, 1.0), (WORKERS, 2.0), (WORKERS, 1.0), (WORKERS, 1.0),
         (MIRRORED, 1.5), (MIRRORED, 1.0), (ALONE, 1.0), (WORKERS, 1.0), (ALONE, 1.0)],
    ],
    ids=["as fast from the first run on", "with a plan from the second run on"],
)  # fmt: skip
def test_switching_between_strategies_and_back_is_not_refused(history):
    judged = refused = 0
    for seed in range(20):
        random, ledger = np.random.default_rng(seed), Ledger()
        for minute, (strategy, faster) in enumerate(history):
            candidate = trained(random, strategy, minute=minute, faster=faster)
            decision = evaluate(candidate, ledger=ledger, settings=GateSettings())
            if any(item.is_far_worse for item in decision.outcomes):
                # A run under a much slower strategy has to be blessed by a person the first time.
                ledger = blessed_by_a_person(ledger, candidate)
                continue
            judged, refused = judged + 1, refused + (not decision.blessed)
            if decision.blessed:
                ledger = ledger.append(candidate, keep=100)
    assert refused / judged <= GateSettings().false_alarm_rate


def share_of(*, step_time_seconds, share, key="input_wait_ratio", rule=None, earlier=1):
    """Returns the outcomes of the share for a run after runs with a wait of 0.3 ms."""
    before = {"step_time_seconds": 1.5e-3, key: 0.2}
    ledger = Ledger(entries=tuple(run(f"r{i}", minute=i, **before) for i in range(earlier)))
    candidate = run("new", minute=60, **{"step_time_seconds": step_time_seconds, key: share})
    rule = rule or {"tolerance": 0.1, "min_baseline": 0.2}
    rules = {"step_time_seconds": {"tolerance": 0.25}, key: rule}
    decision = evaluate(candidate, ledger=ledger, settings=only(**rules))
    return [item for item in decision.outcomes if item.metric == key]


@pytest.mark.parametrize("earlier", [1, 8])  # with eight there is a reference run, too
@pytest.mark.parametrize("key", metrics.SHARES_OF_A_STEP)
def test_the_same_wait_in_a_shorter_step_passes(key, earlier):
    found = share_of(step_time_seconds=0.5e-3, share=0.55, key=key, earlier=earlier)
    assert {outcome.verdict for outcome in found} == {Verdict.PASS}
    assert "55.0% of a step of 500 µs" in found[0].reason
    assert "18.3% of the baseline's, 1.50 ms" in found[0].reason


@pytest.mark.parametrize(
    ("step_time_seconds", "share"),
    [
        (0.8e-3, 0.8),  # a wait of 0.64 ms: longer, although the step is shorter
        (1.5e-3, 0.5),
        (3.0e-3, 0.5),
    ],
)
def test_a_longer_wait_is_refused(step_time_seconds, share):
    found = share_of(step_time_seconds=step_time_seconds, share=share)
    assert [outcome.verdict for outcome in found] == [Verdict.REGRESSION]


def test_the_users_limit_holds_whatever_the_step_time():
    (found,) = share_of(step_time_seconds=0.5e-3, share=0.55, rule={"max": 0.5})
    assert found.verdict is Verdict.LIMIT
