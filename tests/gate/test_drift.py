"""Many small changes do not add up to a large one, and none hides behind another machine."""

import pytest
from gate_runs import ELSEWHERE, HERE, blessed_by_a_person, ledger_of, noisy, only, run

from tfx_perf.config.gate import GateSettings
from tfx_perf.core import errors
from tfx_perf.gate import drift
from tfx_perf.gate.decision import Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate

KEY = "step_time_seconds"
SETTINGS = only(step_time_seconds={"tolerance": 0.03, "max_regression": 0.12})


def ratchet(settings, *, step, count=80):
    """Returns by how much the last blessed run is slower than the first, and what refused."""
    ledger, value = ledger_of(KEY, [1.0] * 8), 1.0
    for number in range(count):
        candidate = run(f"new{number}", minute=10 + number, **{KEY: value * (1 + step)})
        record = evaluate(candidate, ledger=ledger, settings=settings)
        if not record.blessed:
            return value - 1, [found.kind for found in record.outcomes if found.refuses]
        ledger = ledger.append(candidate, keep=settings.ledger_size)
        value = candidate.figures[KEY]
    return value - 1, []


def test_small_steps_stop_at_the_budget():
    slower, refused = ratchet(SETTINGS, step=0.004)
    assert refused == ["drift"]
    assert 0.11 < slower <= 0.12


def test_small_steps_are_counted_from_the_first_runs_however_few_the_ledger_keeps():
    for step in (0.004, 0.0015):
        few = SETTINGS.model_copy(update={"ledger_size": 8})
        slower, refused = ratchet(few, step=step)
        assert refused == ["drift"]
        assert slower <= 0.12


def test_what_a_person_has_blessed_is_not_refused_once_the_ledger_is_full():
    settings = SETTINGS.model_copy(update={"ledger_size": 10})
    ledger = blessed_by_a_person(ledger_of(KEY, [1.0] * 6), run("slow", minute=10, **{KEY: 1.3}))
    for number in range(40):
        candidate = run(f"n{number}", minute=20 + number, **{KEY: 1.3})
        assert evaluate(candidate, ledger=ledger, settings=settings).blessed
        ledger = ledger.append(candidate, keep=10)
    crept = run("crept", minute=99, **{KEY: 1.5})
    assert not evaluate(crept, ledger=ledger, settings=settings).blessed


@pytest.mark.parametrize(
    ("levels", "slower"),
    [((1.0, 0.5), 0.7), ((1.3, 1.0), 1.15), ((1.0, 1.1), 1.25)],
)
def test_a_blessed_slowdown_counts_though_the_code_was_as_slow_before(levels, slower):
    figures = [level + 0.001 * (number % 3) for level in levels for number in range(8)]
    ledger = blessed_by_a_person(ledger_of(KEY, figures), run("slow", minute=30, **{KEY: slower}))
    for number in range(8):
        candidate = run(f"n{number}", minute=40 + number, **{KEY: slower})
        assert evaluate(candidate, ledger=ledger, settings=SETTINGS).blessed
        ledger = ledger.append(candidate, keep=100)


def test_without_max_regression_quality_gets_worse_by_two_tolerances_at_most():
    ledger, auc, refused = Ledger(), 0.8, []
    while not refused:
        auc *= 0.998
        candidate = run(f"n{len(ledger.runs)}", len(ledger.runs), evaluation={"auc": auc})
        record = evaluate(candidate, ledger=ledger, settings=GateSettings())
        refused = [each for each in record.outcomes if each.refuses and "auc" in each.metric]
        ledger = ledger.append(candidate, keep=100)
    assert [(each.kind, each.tolerance) for each in refused] == [("drift", 0.04)]
    assert 0.755 < auc < 0.772


def test_the_best_level_is_not_a_single_lucky_run():
    assert drift.best_level([5.0, 1.0, 5.0, 5.0, 5.0, 4.0], sign=1.0) == (5.0, 2)
    assert drift.best_level([1, 1, 1, 1, 1, 9, 9, 9], sign=-1.0) == (9.0, 5)
    ledger = ledger_of(KEY, [1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert evaluate(run("new", **{KEY: 1.0}), ledger=ledger, settings=SETTINGS).blessed


def test_noise_alone_does_not_exhaust_the_budget():
    for seed in range(20):
        values = noisy(100, sd=0.02, seed=seed)
        ledger = ledger_of(KEY, values[:-1])
        record = evaluate(run("new", **{KEY: values[-1]}), ledger=ledger, settings=SETTINGS)
        drifts = [found for found in record.outcomes if found.kind == "drift"]
        assert [found.verdict for found in drifts] == [Verdict.PASS]


def test_a_regression_after_a_level_shift_is_seen_though_the_mean_is_between():
    ledger = ledger_of(KEY, [1.0] * 3 + [0.7] * 5)
    record = evaluate(run("new", **{KEY: 0.98}), ledger=ledger, settings=SETTINGS)
    assert "drift" in [found.kind for found in record.outcomes if found.refuses]


def test_a_missing_pinned_run_is_an_error_and_a_foreign_one_is_no_anchor():
    pinned = SETTINGS.model_copy(update={"reference_run": "gone"})
    with pytest.raises(errors.UserError, match="Received: gate.reference_run='gone'"):
        evaluate(run("new", **{KEY: 1.0}), ledger=ledger_of(KEY, [1.0]), settings=pinned)
    foreign = run("gone", environment=ELSEWHERE, **{KEY: 0.1})
    ledger = Ledger(entries=(foreign, run("here", environment=HERE, **{KEY: 1.0})))
    record = evaluate(run("new", **{KEY: 1.0}), ledger=ledger, settings=pinned)
    assert [found.kind for found in record.outcomes] == ["change"]


def test_runs_on_poor_data_do_not_refuse_a_good_one_after_them():
    # The last blessed ones are below the bound of the best five; refused ones never replace them.
    values = [0.84] * 5 + [0.80] * 20 + [0.815, 0.772, 0.765, 0.749]
    ledger = ledger_of("train_loss", [1.6 - value for value in values])
    settings = only(train_loss={"tolerance": 0.02})
    for value, blessed in ((0.80, True), (0.70, False)):
        candidate = run("new", minute=100, train_loss=1.6 - value)
        assert evaluate(candidate, ledger=ledger, settings=settings).blessed is blessed


def test_data_variation_is_that_of_all_runs_and_not_of_the_last():
    # Eight runs on data that happen to be alike say little about how much data vary.
    values = [*noisy(60, sd=0.03, seed=1), *noisy(8, sd=0.002, seed=2)]
    record = evaluate(
        run("new", minute=100, train_loss=1.045),
        ledger=ledger_of("train_loss", values), settings=only(train_loss={"tolerance": 0.02}),
    )  # fmt: skip
    assert record.blessed
    faster = evaluate(
        run("new", minute=100, **{KEY: 1.045}), ledger=ledger_of(KEY, values),
        settings=only(**{KEY: {"tolerance": 0.02}}),
    )  # fmt: skip
    assert not faster.blessed


def test_an_anchor_of_another_pipeline_is_refused_and_one_that_differs_is_named():
    settings = SETTINGS.model_copy(update={"reference_run": "old"})
    others = Ledger(entries=(run("old", pipeline="taxi", **{KEY: 1.0}),))
    candidate = run("new", minute=9, pipeline="orders", **{KEY: 1.0})
    with pytest.raises(errors.UserError, match="blessed run of this node, which has 0"):
        evaluate(candidate, ledger=others, settings=settings)
    entries = (
        run("old", environment=ELSEWHERE, **{KEY: 1.0}),
        *(run(f"r{i}", minute=1 + i, **{KEY: 1.0}) for i in range(6)),
    )
    found = evaluate(run("new", minute=9, **{KEY: 1.0}), ledger=Ledger(entries=entries),
                     settings=settings)  # fmt: skip
    drifts = [item.reason for item in found.outcomes if item.kind == "drift"]
    assert "the reference run old has no comparable figure" in drifts[0]


def trained(name, *, minute=0, slower=1.0, **other):
    """Returns a run with that many times the usual step time."""
    return run(
        name, minute=minute, environment={**HERE, **other}, step_time_seconds=1e-3 * slower,
        examples_per_second=64e3 / slower, training_memory_bytes=1e9, validation_loss=0.5,
        train_step_count=5000.0, evaluation={"auc": 0.8},
    )  # fmt: skip


LEDGER = Ledger(entries=tuple(trained(f"r{i}", minute=i) for i in range(8)))


def judged(candidate, *, ledger):
    return evaluate(candidate, ledger=ledger, settings=GateSettings())


def test_many_versions_do_not_add_up_to_a_slow_step():
    ledger, slower = LEDGER, 1.0
    for number in range(40):
        slower *= 1.02
        night = trained(f"n{number}", minute=9 + number, slower=slower, tensorflow=f"{number}")
        if judged(night, ledger=ledger).blessed:
            ledger = ledger.append(night, keep=100)
    assert max(entry.figures["step_time_seconds"] for entry in ledger.entries) < 1.3e-3


def test_a_wait_that_is_no_longer_may_be_a_larger_share_of_a_shorter_step():
    def waiting(name, share, **other):
        found = trained(name, minute=9, **other)
        return found.model_copy(update={"figures": {**found.figures, "input_wait_ratio": share}})

    ledger = Ledger(entries=(waiting("old", 0.1),))
    for slower, blessed in ((0.2, True), (1.0, False)):
        candidate = waiting("new", 0.5, slower=slower, device_kind="A100")
        assert judged(candidate, ledger=ledger).blessed is blessed


def test_a_count_that_rises_from_zero_on_another_machine_is_refused_not_divided_by():
    ledger = ledger_of("oom_count", [0.0, 0.0, 0.0])
    candidate = run("new", minute=60, environment=ELSEWHERE, oom_count=1.0)
    decision = evaluate(candidate, ledger=ledger, settings=only(oom_count={"tolerance": 0.5}))
    (outcome,) = decision.outcomes
    assert outcome.is_far_worse
    assert outcome.refuses
    assert outcome.change is None
