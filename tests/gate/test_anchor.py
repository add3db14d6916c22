"""Many small changes do not add up to a large one, nor hides one behind another machine."""

import pytest
from gate_runs import ELSEWHERE, HERE, ledger_of, noisy, only, run

from tfx_perf.config.gate import GateSettings, Policy
from tfx_perf.core import errors
from tfx_perf.gate import anchor
from tfx_perf.gate.decision import Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate

KEY = "step_time_seconds"
SETTINGS = only(step_time_seconds={"margin": 0.03, "budget": 0.12})


def ratchet(settings, *, step, count=80):
    """Returns how much slower than the first the last blessed run is, and what refused."""
    ledger, value = ledger_of(KEY, [1.0] * 8), 1.0
    for number in range(count):
        candidate = run(f"new{number}", minute=10 + number, **{KEY: value * (1 + step)})
        record = evaluate(candidate, ledger=ledger, settings=settings)
        if not record.blessed:
            return value - 1, [found.kind for found in record.outcomes if found.refuses]
        ledger = ledger.append(candidate, keep=settings.kept_runs)
        value = candidate.figures[KEY]
    return value - 1, []


def test_small_steps_stop_at_the_budget():
    slower, refused = ratchet(SETTINGS, step=0.004)
    assert refused == ["drift"]
    assert 0.11 < slower <= 0.12


def test_without_memory_of_the_best_level_they_would_not():
    forgetful = SETTINGS.model_copy(update={"kept_runs": 8})
    slower, _ = ratchet(forgetful, step=0.004)
    assert slower > 0.2


def test_the_best_level_is_no_single_lucky_run():
    assert anchor.best_level([5.0, 1.0, 5.0, 5.0, 5.0, 4.0], sign=1.0) == 5.0
    assert anchor.best_level([1, 1, 1, 1, 1, 9, 9, 9], sign=-1.0) == 9.0
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


def test_a_pinned_run_that_is_not_there_is_an_error_and_one_from_elsewhere_no_anchor():
    pinned = SETTINGS.model_copy(update={"anchor": "gone"})
    with pytest.raises(errors.UserError, match="Received: gate.anchor='gone'"):
        evaluate(run("new", **{KEY: 1.0}), ledger=ledger_of(KEY, [1.0]), settings=pinned)
    foreign = run("gone", environment=ELSEWHERE, **{KEY: 0.1})
    ledger = Ledger(entries=(foreign, run("here", environment=HERE, **{KEY: 1.0})))
    record = evaluate(run("new", **{KEY: 1.0}), ledger=ledger, settings=pinned)
    assert [found.kind for found in record.outcomes] == ["change"]


def test_runs_on_poor_data_do_not_refuse_a_good_one_after_them():
    # The last blessed ones lie below what the best five allow; refused ones never replace them.
    values = [0.84] * 5 + [0.80] * 20 + [0.815, 0.772, 0.765, 0.749]
    ledger = ledger_of("train_loss", [1.6 - value for value in values])
    settings = only(train_loss={"margin": 0.02})
    for value, blessed in ((0.80, True), (0.70, False)):
        candidate = run("new", minute=100, train_loss=1.6 - value)
        assert evaluate(candidate, ledger=ledger, settings=settings).blessed is blessed


def test_the_variation_of_the_data_is_that_of_all_runs_and_not_of_the_last():
    # Eight runs on data that happen to be alike say little of how much data vary.
    values = [*noisy(60, sd=0.03, seed=1), *noisy(8, sd=0.002, seed=2)]
    record = evaluate(
        run("new", minute=100, train_loss=1.045),
        ledger=ledger_of("train_loss", values), settings=only(train_loss={"margin": 0.02}),
    )  # fmt: skip
    assert record.blessed
    faster = evaluate(
        run("new", minute=100, **{KEY: 1.045}), ledger=ledger_of(KEY, values),
        settings=only(**{KEY: {"margin": 0.02}}),
    )  # fmt: skip
    assert not faster.blessed


def test_an_anchor_of_another_pipeline_is_refused_and_one_that_differs_is_named():
    settings = SETTINGS.model_copy(update={"anchor": "old"})
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
    assert "the anchor old has no comparable figure" in drifts[0]


BEFORE = {
    "device_kind": "CPU", "cpu_model": "EPYC", "cpu_count": "2", "tensorflow": "2.16.1",
    "keras": "3.3.0", "python": "3.11", "data_spec": "a", "precision": "float32",
    "global_batch_size": "40", "parameter_count": "1000000", "flops_per_step": "80000000",
}  # fmt: skip
OTHERS = {
    "tensorflow": "2.16.2", "keras": "3.3.1", "python": "3.12", "data_spec": "b",
    "cpu_count": "4", "device_kind": "A100", "global_batch_size": "41",
}  # fmt: skip


def trained(name, *, minute=0, slower=1.0, larger=1.0, loss=0.5, steps=5000.0, **other):
    """Returns a run with that many times the step time and the memory."""
    environment = {**BEFORE, **other}
    seconds = 1e-3 * slower
    return run(
        name, minute=minute, environment=environment, step_time_seconds=seconds,
        examples_per_second=float(environment["global_batch_size"]) / seconds,
        training_memory_bytes=1e9 * larger, validation_loss=loss, train_step_count=steps,
        evaluation={"auc": 0.8},
    )  # fmt: skip


LEDGER = Ledger(entries=tuple(trained(f"r{i}", minute=i) for i in range(8)))


def judged(candidate, *, ledger=LEDGER, **settings):
    return evaluate(candidate, ledger=ledger, settings=GateSettings(**settings))


@pytest.mark.parametrize("field", OTHERS)
@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"slower": 10.0}, "step_time_seconds (not comparable): 10.0 ms is 10.0 times"),
        ({"larger": 20.0}, "training_memory_bytes (not comparable): 18.6 GiB is 20.0 times"),
    ],
)
def test_what_is_far_worse_is_refused_whatever_else_changed(field, figures, said):
    decision = judged(trained("new", minute=9, **{field: OTHERS[field]}, **figures))
    assert not decision.blessed
    assert decision.verdict is Verdict.NOT_COMPARABLE
    for words in (said, f"{field} {BEFORE[field]} -> {OTHERS[field]}", "`tfx-perf bless`"):
        assert words in decision.headline


@pytest.mark.parametrize("field", OTHERS)
def test_what_is_not_is_blessed_if_the_quality_holds(field):
    decision = judged(trained("new", minute=9, slower=1.15, **{field: OTHERS[field]}))
    assert decision.blessed, decision.headline
    refusing = Policy(not_comparable="refuse")
    other = trained("new", minute=9, **{field: OTHERS[field]})
    assert not judged(other, policy=refusing).blessed


@pytest.mark.parametrize(
    ("other", "figures", "blessed"),
    [
        # A hundred times the batch.
        ({"global_batch_size": "4096", "flops_per_step": "8192000000"}, {"slower": 90.0}, True),
        ({"global_batch_size": "4096", "flops_per_step": "8192000000"}, {"slower": 140.0}, False),
        ({"global_batch_size": "4096"}, {"slower": 90.0, "larger": 60.0}, True),
        ({"global_batch_size": "4096"}, {"larger": 150.0}, False),
        # A step on fewer examples gives fewer of them a second, and takes no longer.
        ({"global_batch_size": "4"}, {"slower": 1.0}, True),
        ({"global_batch_size": "4"}, {"slower": 2.0}, False),
        # A model of four times the size.
        ({"parameter_count": "4000000", "flops_per_step": "320000000"}, {"slower": 4.0}, True),
        ({"parameter_count": "4000000", "flops_per_step": "320000000"}, {"slower": 6.0}, False),
        ({"parameter_count": "4000000"}, {"larger": 3.9}, True),
        ({"parameter_count": "4000000"}, {"larger": 9.0}, False),
    ],
)
def test_more_work_explains_as_much_more_time_and_memory(other, figures, blessed):
    decision = judged(trained("new", minute=9, **other, **figures))
    assert decision.blessed is blessed, decision.headline


@pytest.mark.parametrize(
    ("steps", "loss", "blessed"),
    [
        (500.0, 0.9, True), (500.0, 50.0, False), (50_000.0, 0.6, True), (50_000.0, 0.9, False),
    ],
)
def test_a_shorter_training_explains_a_higher_loss_and_a_longer_one_does_not(steps, loss, blessed):
    decision = judged(trained("new", minute=9, steps=steps, loss=loss))
    assert decision.blessed is blessed, decision.headline
    if not blessed:
        assert f"trained steps 5000 -> {steps:g}" in decision.headline


def test_a_run_that_does_not_say_how_long_it_trained_is_judged():
    candidate = trained("new", minute=9, loss=50.0)
    figures = {key: value for key, value in candidate.figures.items() if "count" not in key}
    decision = judged(candidate.model_copy(update={"figures": figures}))
    assert "trained steps 5000 -> (not recorded)" in decision.headline
    assert not decision.blessed


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
