"""The runs compared with: models that grow, other machines, quality, manual decisions."""

import datetime
import functools

import pytest
from gate_runs import ELSEWHERE, HERE, only, run

from tfx_perf.config.gate import GateSettings
from tfx_perf.config.rule import Rule
from tfx_perf.core import metrics
from tfx_perf.gate.baseline import at_size_of
from tfx_perf.gate.decision import Verdict
from tfx_perf.gate.ledger import Ledger, Override
from tfx_perf.gate.run import differences
from tfx_perf.gate.verdict import evaluate

KEY = "step_time_seconds"
SPEED = only(step_time_seconds={"tolerance": 0.03})


def sized(factor, **fields):
    """Returns the environment of a model that many times the size of the first."""
    parameters, flops = round(1e6 * factor), round(3e6 * factor)
    return {**HERE, "parameter_count": str(parameters), "flops_per_step": str(flops), **fields}


def test_a_model_of_about_the_same_size_is_comparable_and_others_are_not():
    assert differences(sized(1.0), sized(1.2)) == {}
    assert set(differences(sized(1.0), sized(1.3))) == {"parameter_count", "flops_per_step"}
    assert differences(sized(1.0), sized(1.2, device_kind="A100")) == {
        "device_kind": ("CPU", "A100")
    }
    # An uncounted size agrees only with another uncounted size.
    assert differences(sized(1.0, flops_per_step="None"), sized(1.0))
    assert not differences(sized(1.0, flops_per_step="None"), sized(1, flops_per_step="None"))


@pytest.mark.parametrize(
    ("before", "now", "differences"),
    [
        ({"strategy": "_DefaultDistributionStrategy"}, {"strategy": "one_device"}, {}),
        (
            {"strategy": "MultiWorkerMirroredStrategy", "worker_count": "2"},
            {"strategy": "MultiWorkerMirroredStrategy", "worker_count": "2", "replica_count": "2"},
            {},
        ),
        (
            {"strategy": "one_device"},
            {"strategy": "MirroredStrategy", "replica_count": "2"},
            {"strategy": ("one_device", "MirroredStrategy"), "replica_count": ("1", "2")},
        ),
        (  # whose replicas were not recorded, so it may have used one of the two
            {"strategy": "MirroredStrategy", "device_count": "2"},
            {"strategy": "MirroredStrategy", "device_count": "2", "replica_count": "2"},
            {"replica_count": ("(not recorded)", "2")},
        ),
    ],
)
def test_environment_fields_that_can_be_inferred_make_no_difference(before, now, differences):
    known = run("a", environment={"device_count": "1", **before})
    candidate = run("b", environment={"device_count": "1", **now})
    found = evaluate(candidate, ledger=Ledger(entries=(known,)), settings=SPEED)
    assert found.differences == differences


def test_figures_of_models_of_equal_size_are_unchanged():
    figures = [1.0, 1.1, 0.9]
    environments = [sized(1.0)] * 3
    found, _ = at_size_of(
        sized(1.0), key=KEY, figures=figures, environments=environments, prior=0.01
    )
    assert found == pytest.approx(figures)


@pytest.mark.parametrize("follows", [0.0, 0.5, 1.0])
def test_the_runs_themselves_show_how_a_figure_follows_the_size(follows):
    factors = [1 + 0.01 * day for day in range(20)]
    found, _ = at_size_of(
        sized(1.2), key=KEY, figures=[factor**follows for factor in factors],
        environments=[sized(factor) for factor in factors], prior=0.001,
    )  # fmt: skip
    assert found == pytest.approx([1.2**follows] * 20, rel=0.002)


def test_the_anchor_run_may_be_judged_again():
    entries = tuple(run(f"r{i}", minute=i, step_time_seconds=1.0) for i in range(3))
    settings = SPEED.model_copy(update={"reference_run": "r1"})
    assert evaluate(entries[1], ledger=Ledger(entries=entries), settings=settings).blessed


@pytest.mark.parametrize("key", ["train_loss", "evaluation/auc"])
def test_missing_or_nan_quality_is_refused(key):
    def one(name, minute, *, has_it):
        loss = {"train_loss": 0.5} if has_it or key != "train_loss" else {}
        auc = {"auc": 0.9} if has_it or key == "train_loss" else {}
        return run(name, minute=minute, step_time_seconds=1.0, train_step_count=1000,
                   training_memory_bytes=1e9, evaluation=auc, **loss)  # fmt: skip

    ledger = Ledger(entries=tuple(one(f"r{i}", i, has_it=True) for i in range(5)))
    without = one("new", 9, has_it=False)
    refused = evaluate(without, ledger=ledger, settings=GateSettings())
    assert not refused.blessed
    assert f"{key} (invalid)" in refused.headline
    (outcome,) = [outcome for outcome in refused.outcomes if outcome.refuses]
    assert outcome.remedy.setting == f"gate.rules.{key}.optional"
    for given_up in (None, {"optional": True}):
        settings = GateSettings(rules={key: given_up})
        assert evaluate(without, ledger=ledger, settings=settings).blessed
    assert evaluate(without, ledger=Ledger(), settings=GateSettings()).blessed


def test_trainings_that_stop_early_are_judged_by_other_figures():
    def one(name, minute, steps, seconds=1.0):
        return run(name, minute=minute, step_time_seconds=seconds, train_step_count=steps,
                   training_memory_bytes=1e9, train_loss=1000 / steps)  # fmt: skip

    ledger = Ledger(entries=tuple(one(f"r{i}", i, 2000 + 500 * i) for i in range(5)))
    assert evaluate(one("new", 9, 7000), ledger=ledger, settings=GateSettings()).blessed
    assert not evaluate(one("new", 9, 7000, 1.3), ledger=ledger, settings=GateSettings()).blessed


@pytest.mark.one_case
@pytest.mark.parametrize("ratio", [1.05, 1.1, 1.2, 1.24, 1.3])
def test_a_model_that_grows_suddenly_does_not_lock_the_gate(ratio):
    """Its time and memory follow the size, which runs of a single size cannot show."""
    ledger = Ledger()
    for day in range(40):
        size = ratio if day >= 20 else 1.0
        candidate = run(
            f"r{day}", minute=day, step_time_seconds=0.01 * size, training_memory_bytes=4e9 * size,
            train_loss=0.5, train_step_count=1000,
            environment={**HERE, "parameter_count": str(round(1e6 * size)),
                         "flops_per_step": str(round(3e6 * size))},
        )  # fmt: skip
        decision = evaluate(candidate, ledger=ledger, settings=GateSettings())
        assert decision.blessed, (day, decision.headline)
        ledger = ledger.append(candidate, keep=100)


def test_small_losses_against_each_days_baseline_model_do_not_accumulate():
    ledger, auc = Ledger(), 0.9
    settings = GateSettings(rules={"evaluation/auc": Rule(tolerance=0.02)}, use_defaults=False)
    for day in range(30):
        after = auc * 0.985 if day >= 8 else auc
        candidate = run(f"r{day}", minute=day, evaluation={"auc": after})
        candidate = candidate.model_copy(update={"evaluation_gains": {"auc": after - auc}})
        decision = evaluate(candidate, ledger=ledger, settings=settings)
        if not decision.blessed:
            break
        ledger, auc = ledger.append(candidate, keep=100), after
    assert not decision.blessed
    assert auc > 0.9 * (1 - 4 * 0.02) - 0.02


def test_an_advisory_quality_rule_does_not_refuse():
    settings = GateSettings(rules={
        "step_time_seconds": Rule(tolerance=0.05),
        "evaluation/auc": Rule(tolerance=0.02, advisory=True),
    }, use_defaults=False)  # fmt: skip
    before = run("a", step_time_seconds=1.0, evaluation={"auc": 0.9})
    after = run("b", environment=ELSEWHERE, step_time_seconds=5.0, evaluation={"auc": 0.4})
    assert not evaluate(after, ledger=Ledger(entries=(before,)), settings=settings).blessed


def resumed(name, **figures):
    return run(name, minute=9, resumed_step=2800.0, train_step_count=200.0, **figures)


WHOLE = {"train_step_count": 3000.0, "train_loss": 0.5, "step_time_seconds": 1e-3}


@pytest.mark.parametrize("key", sorted(metrics.OF_ONE_PROCESS))
def test_figures_of_a_whole_training_are_not_compared_with_a_part(key):
    direction = metrics.CATALOGUE[key].direction
    worse = 1.0 if direction is metrics.Direction.LOWER else 0.1
    before = tuple(run(f"r{i}", minute=i, **WHOLE, **{key: 0.5}) for i in range(5))
    judged = functools.partial(evaluate, settings=only(**{key: Rule(tolerance=0.01)}))
    known = Ledger(entries=before)
    assert not judged(run("b", minute=9, **WHOLE, **{key: worse}), ledger=known).blessed
    part = judged(resumed("c", **{key: worse}), ledger=known)
    assert (part.blessed, part.outcomes[0].verdict) == (True, Verdict.SKIPPED)
    assert "interrupted" in part.outcomes[0].reason
    # Nor is the next whole training compared with the figures of a part.
    better = 0.1 if direction is metrics.Direction.LOWER else 1.0
    parts = tuple(resumed(f"p{i}", **{key: better}) for i in range(5))
    whole = run("d", minute=20, **WHOLE, **{key: 0.5})
    assert judged(whole, ledger=Ledger(entries=(*before, *parts))).blessed
    alone = judged(whole, ledger=Ledger(entries=parts))
    assert alone.outcomes[0].verdict is Verdict.NO_BASELINE


def test_the_losses_of_a_resumed_training_cover_all_its_steps():
    before = Ledger(entries=tuple(run(f"r{i}", minute=i, **WHOLE) for i in range(5)))
    settings = only(train_loss=Rule(tolerance=0.05))
    found = evaluate(resumed("c", train_loss=0.7), ledger=before, settings=settings)
    assert found.outcomes[0].verdict is Verdict.REGRESSION


RULES = only(
    step_time_seconds={"tolerance": 0.03},
    examples_per_second={"tolerance": 0.03, "optional": True},
    peak_rss_bytes={"tolerance": 0.05, "optional": True},
)


def at(name, speed, *, minute=0, memory=1e9):
    """Returns a run with that many times the usual step time."""
    return run(
        name, minute=minute, step_time_seconds=speed, examples_per_second=100 / speed,
        peak_rss_bytes=memory,
    )  # fmt: skip


def blessed_by_hand(entry):
    """Returns the ledger with a manual decision to bless the run."""
    later = entry.time + datetime.timedelta(seconds=1)
    act = Override(kind="bless", run_id=entry.run_id, who="me", time=later, reason="by design")
    return Ledger(entries=(entry,), acts=(act,))


def refusals(candidate, ledger):
    decision = evaluate(candidate, ledger=ledger, settings=RULES)
    return {item.metric: item.verdict for item in decision.outcomes if item.refuses}


@pytest.mark.parametrize("count", [1, 2, 4, 8, 12])
@pytest.mark.parametrize("slower", [1.3, 2.0, 15.0])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_later_runs_are_compared_with_a_manually_blessed_run_alone(count, slower, spread):
    before = [at(f"r{i}", 1.0 + spread * (i % 2), minute=i) for i in range(count)]
    known = Ledger(entries=tuple(before))
    decided = at("decided", slower * (1 + spread), minute=50)
    ledger = known.merge(blessed_by_hand(decided))
    again = at("again", 1.01 * slower * (1 + spread), minute=60)
    assert not refusals(again, ledger)
    worse = at("worse", 1.5 * slower * (1 + spread), minute=60)
    assert refusals(worse, ledger)["step_time_seconds"] is Verdict.REGRESSION


def test_the_anchor_is_sought_among_runs_since_the_decision():
    before = tuple(at(f"r{i}", 1.0, minute=i) for i in range(8))
    ledger = Ledger(entries=before).merge(blessed_by_hand(at("decided", 2.0, minute=50)))
    after = tuple(at(f"s{i}", 2.0, minute=60 + i) for i in range(8))
    ledger = ledger.merge(Ledger(entries=after))
    assert not refusals(at("again", 2.01, minute=90), ledger)


def test_earlier_runs_still_count_for_other_figures():
    before = tuple(at(f"r{i}", 1.0, minute=i) for i in range(8))
    ledger = Ledger(entries=before).merge(blessed_by_hand(at("decided", 2.0, minute=50)))
    larger = at("larger", 2.0, minute=60, memory=1.5e9)
    assert set(refusals(larger, ledger)) == {"peak_rss_bytes"}
    decision = evaluate(larger, ledger=ledger, settings=RULES)
    (memory,) = [item for item in decision.outcomes if item.refuses and item.kind == "change"]
    assert memory.detectable < 0.06  # known from nine runs


def test_withdrawing_the_decision_restores_the_earlier_level():
    before = tuple(at(f"r{i}", 1.0, minute=i) for i in range(8))
    decided = at("decided", 2.0, minute=50)
    taken_back = Override(
        kind="unbless", run_id="decided", who="me", reason="too dear",
        time=decided.time + datetime.timedelta(seconds=9),
    )  # fmt: skip
    ledger = Ledger(entries=before).merge(blessed_by_hand(decided), Ledger(acts=(taken_back,)))
    assert "step_time_seconds" in refusals(at("again", 2.0, minute=60), ledger)
    assert not refusals(at("healthy", 1.0, minute=60), ledger)
