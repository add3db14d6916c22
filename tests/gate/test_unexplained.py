"""What no comparable run explains: far worse figures are never blessed unseen, whatever differs."""

import pytest
from gate_runs import blessed_by_a_person, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate
from tfx_perf.settings.gate import GateSettings
from tfx_perf.settings.policy import Policy

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


def test_what_a_person_has_blessed_is_the_measure_from_then_on():
    slow = trained("slow", minute=9, slower=10.0, tensorflow="2.16.2")
    ledger = blessed_by_a_person(LEDGER, slow)
    again = trained("again", minute=10, slower=10.0, tensorflow="2.16.3")
    assert judged(again, ledger=ledger).blessed
    slower = trained("slower", minute=10, slower=14.0, tensorflow="2.16.3")
    assert not judged(slower, ledger=ledger).blessed


def test_a_policy_that_blesses_what_is_not_comparable_holds():
    candidate = trained("new", minute=9, slower=10.0, tensorflow="2.16.2")
    assert judged(candidate, policy=Policy(not_comparable="bless")).blessed


def test_a_wait_that_is_no_longer_may_be_a_larger_share_of_a_shorter_step():
    def waiting(name, share, **other):
        found = trained(name, minute=9, **other)
        return found.model_copy(update={"figures": {**found.figures, "input_wait_ratio": share}})

    ledger = Ledger(entries=(waiting("old", 0.1),))
    for slower, blessed in ((0.2, True), (1.0, False)):
        candidate = waiting("new", 0.5, slower=slower, device_kind="A100")
        assert judged(candidate, ledger=ledger).blessed is blessed
