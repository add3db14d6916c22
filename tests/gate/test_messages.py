"""What people read of a decision: headline, circumstances, remedies, lines for a terminal."""

import collections
import random
import re

import pytest
from gate_runs import ELSEWHERE, HERE, ledger_of, only, run

from tfx_perf.config.gate import GateSettings, Policy
from tfx_perf.config.rule import Rule
from tfx_perf.gate import messages
from tfx_perf.gate.decision import GateRecord, Outcome, Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.report import gate as gate_report

KEY = "step_time_seconds"


def test_a_blessed_run_shows_its_figures_and_their_changes():
    decision = evaluate(
        run("new", **{KEY: 0.0102}, train_loss=0.25, cost_per_million_examples=0.125),
        ledger=ledger_of(KEY, [0.01, 0.01]),
        settings=only(**{KEY: {"margin": 0.1}}),
    )
    assert list(messages.lines(decision)) == [
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
    first, figures, remedy, second, other, bless = messages.lines(decision)
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
    said = [line for line in messages.lines(decision) if "on one replica" in line]
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
    lines = list(messages.lines(decision))
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
    assert words in list(messages.lines(decision))[1]
    assert "times the baseline -" not in decision.outcomes[0].reason


def test_a_rate_does_not_fall_by_more_than_all_of_it():
    decision = evaluate(
        run("new", examples_per_second=7.0),
        ledger=ledger_of("examples_per_second", [100.0, 150.0]),
        settings=only(examples_per_second={"margin": 0.05}),
    )
    found = decision.outcomes[0].from_baseline
    assert -1 <= found.low <= found.value <= found.high


STEP, PEAK = "step_time_seconds", "peak_flops_per_second"
XLA, CALLS = "50 steps in one XLA computation", "43 steps per call, fused update"
LACK = "3.00 s of it were left; training.trial_budget_seconds has room if it is larger by 9"


def circumstanced(value, *, plan=XLA, lack="", peak=124e9, is_of_script=False, **settings):
    """The decision on a run after three that took 1 s a step, with `XLA`, at 120 GFLOP/s."""
    known = [
        run(f"r{i}", minute=i, **{STEP: 1.0, PEAK: 120e9 + i}).model_copy(update={"plan": XLA})
        for i in range(3)
    ]
    own = run("new", minute=9, **{STEP: value, PEAK: peak})
    names = {"plan": plan, "budget_lack": lack, "is_of_script": is_of_script}
    return evaluate(
        own.model_copy(update=names),
        ledger=Ledger(entries=tuple(known)),
        settings=only(**{STEP: {"margin": 0.03}}).model_copy(update=settings),
    )


def remedy(decision):
    """What it says to do."""
    (outcome,) = decision.outcomes
    return outcome.remedy.suggestion


def test_another_plan_is_named_and_the_budget_where_the_trials_ended_with_it():
    decision = circumstanced(5.0, plan=CALLS, lack=LACK)
    said = (
        f"It was trained with another plan: {CALLS}; blessed run r2 with: {XLA}. Its trials ended "
        f"with their budget: {LACK}."
    )
    assert said in next(messages.lines(decision))
    assert said in gate_report.report_on(decision).verdict
    assert "another plan" in circumstanced(5.0, plan=CALLS).headline
    assert "trials" not in circumstanced(5.0, plan=CALLS).headline
    assert "trials" not in circumstanced(5.0, lack=LACK).headline  # they did no harm


def test_a_slower_machine_is_named_and_what_measures_again_there():
    decision = circumstanced(2.0, peak=38e9)
    assert (
        "The machine was slower: a matrix product ran at 38 GFLOP/s, in the blessed runs at no "
        "less than 120." in decision.headline
    )
    assert "with gate.escalate_seconds it is measured again" in remedy(decision)
    assert "escalate" not in remedy(circumstanced(2.0, peak=38e9, escalate_seconds=60.0))
    assert "escalate" not in remedy(circumstanced(2.0))


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_script_which_nobody_measures_again_is_to_be_run_again(seconds):
    slow = circumstanced(2.0, peak=38e9, is_of_script=True, escalate_seconds=seconds)
    assert remedy(slow).endswith("run the script again while the machine does no other work")
    assert "again" not in remedy(circumstanced(2.0, is_of_script=True, escalate_seconds=seconds))


@pytest.mark.parametrize(("value", "plan"), [(1.0, CALLS), (2.0, XLA), (2.0, "")])
def test_nothing_is_said_of_a_blessed_run_nor_of_the_same_plan_nor_of_one_that_nobody_knows(
    value, plan
):
    headline = circumstanced(value, plan=plan).headline
    assert "plan" not in headline
    assert "slower" not in headline


SMALL = {**HERE, "parameter_count": "1000", "flops_per_step": "100000"}
LARGE = {**HERE, "parameter_count": "30000", "flops_per_step": "3000000"}


@pytest.mark.parametrize(
    ("seconds", "environment", "rule", "said", "blessed"),
    [
        (0.031, LARGE, {}, "A step does 30 times the work of the last blessed run's, and takes 31 "
         "times as long; not refused for it: rules: {step_time_seconds: {max: SECONDS}} would set "
         "a limit. Blessed:", True),
        (0.052, LARGE, {}, "takes 52 times as long. Refused by 1 of 2 checks.", False),
        (0.031, LARGE, {"max": 0.01}, "takes 31 times as long. Refused", False),
        (0.031, LARGE, "a policy that refuses", "takes 31 times as long. Refused", False),
        (0.002, {**SMALL, "parameter_count": "5000"}, {}, "The model has 5 times the last blessed "
         "run's parameters, and a step takes 2 times as long;", True),
        (0.0005, LARGE, {}, "", True),
        (0.052, {**LARGE, "device_kind": "A100"}, {}, "", False),
        (0.052, {**HERE, "parameter_count": "30000"}, {}, "", False),
    ],
    ids=["by as much", "by more", "beyond a limit", "by a policy", "by parameters", "faster",
         "another device", "work unknown"],
)  # fmt: skip
def test_slower_steps_of_a_larger_model_are_told_with_what_refuses_them_or_would(
    seconds, environment, rule, said, blessed
):
    before = run("old", environment=SMALL, train_loss=0.5, **{STEP: 0.001})
    own = {} if isinstance(rule, str) else rule
    settings = only(**{STEP: {"margin": 0.03, **own}, "train_loss": {"margin": 0.05}})
    if isinstance(rule, str):
        settings = settings.model_copy(update={"policy": Policy(not_comparable="refuse")})
    candidate = run("new", environment=environment, train_loss=0.5, **{STEP: seconds})
    decision = evaluate(candidate, ledger=Ledger(entries=(before,)), settings=settings)
    assert decision.blessed is blessed
    assert said in decision.headline
    assert ("times as long" in decision.headline) == bool(said)


TIME, RATE = "step_time_seconds", "examples_per_second"


def refusal(key: str, value: float, *, ledger: Ledger, settings: GateSettings) -> Outcome | None:
    """Returns the only outcome that refuses, None if the run is blessed."""
    decision = evaluate(run("new", **{key: value}), ledger=ledger, settings=settings)
    found = [outcome for outcome in decision.outcomes if outcome.refuses]
    assert all((outcome in found) is (outcome.remedy is not None) for outcome in decision.outcomes)
    assert len(found) <= 1
    return found[0] if found else None


def followed(outcome: Outcome, rule: dict[str, float]) -> dict[str, float] | None:
    """Returns the rule as the remedy has it, None if it names no number."""
    changed, words = dict(rule), outcome.remedy.suggestion
    if limit := re.search(r"^([\d.e+-]+) would let", words):
        changed[outcome.remedy.setting.rpartition(".")[2]] = float(limit[1])
    elif margin := re.search(r"margin: ([\d.e+-]+)", words):
        changed["margin"] = float(margin[1])
        if budget := re.search(r"budget: ([\d.e+-]+)", words):
            changed["budget"] = float(budget[1])
    elif "advisory: true" in words:
        changed["advisory"] = True
    else:
        return None
    return changed


@pytest.mark.parametrize(
    ("key", "rule", "value", "verdict"),
    [
        (TIME, {"max": 1.0}, 1.2345, Verdict.LIMIT),
        (TIME, {"min": 0.5}, 0.01239, Verdict.LIMIT),
        ("mfu_ratio", {"min": 0.3}, 0.217, Verdict.LIMIT),
        (TIME, {"margin": 0.03}, 1.2345, Verdict.REGRESSION),
        (TIME, {"margin": 0.03, "budget": 0.1}, 1.31, Verdict.REGRESSION),
        (TIME, {"max": 0.17}, 0.7200000000000001, Verdict.LIMIT),
        ("memory_leak", {"max": 0.0}, 1.0, Verdict.LIMIT),
        ("input_wait_ratio", {"max": 0.3}, 0.996, Verdict.LIMIT),
        ("mfu_ratio", {"min": 0.1}, 0.0, Verdict.LIMIT),
        (RATE, {"margin": 0.03}, 0.777, Verdict.REGRESSION),
        (TIME, {"margin": 0.02, "noise": 0.2}, 1.7, Verdict.REGRESSION),
        (TIME, {"margin": 0.03, "noise": 0.1}, 1.01, Verdict.INCONCLUSIVE),
        (RATE, {"margin": 0.03, "noise": 0.1}, 0.99, Verdict.INCONCLUSIVE),
    ],
)
def test_who_follows_it_gets_the_run_through(key, rule, value, verdict):
    ledger = ledger_of(key, [1.0, 1.0, 1.0])
    refused = refusal(key, value, ledger=ledger, settings=only(**{key: rule}))
    assert refused.verdict is verdict
    settings = only(**{key: followed(refused, rule)})
    assert refusal(key, value, ledger=ledger, settings=settings) is None


@pytest.mark.parametrize("rule", [{"margin": 0.05, "budget": 0.06}, {"margin": 0.02}])
def test_one_margin_serves_the_change_and_the_anchor(rule):
    ledger = ledger_of(TIME, [1.0] * 5 + [1.04] * 8)
    settings = only(**{TIME: rule})
    decision = evaluate(run("new", **{TIME: 1.15}), ledger=ledger, settings=settings)
    refusals = [outcome for outcome in decision.outcomes if outcome.refuses]
    assert "drift" in {outcome.kind for outcome in refusals}
    (words,) = {outcome.remedy.suggestion for outcome in refusals}
    settings = only(**{TIME: followed(refusals[0], rule)})
    assert evaluate(run("new", **{TIME: 1.15}), ledger=ledger, settings=settings).blessed


@pytest.mark.parametrize(
    ("key", "value", "own"),
    [
        (TIME, 1.3, {}), (TIME, 1.05, {"noise": 0.1}), (RATE, 70.0, {"max": 1e9}),
        ("train_loss", 0.9, {}), ("fragmentation_ratio", 0.5, {"advisory": False}),
        ("peak_memory_share_ratio", 0.995, {}), ("memory_leak", 1.0, {}),
    ],
)  # fmt: skip
def test_it_holds_beside_the_default_rules(key, value, own):
    usual = {TIME: 1.0, RATE: 100.0, "train_loss": 0.5, "training_memory_bytes": 1e9}
    ledger = Ledger(entries=tuple(run(f"r{i}", minute=i, **usual) for i in range(6)))
    candidate = run("new", minute=9, **{**usual, key: value})

    def judged(rules: dict[str, dict[str, float]]) -> GateRecord:
        return evaluate(candidate, ledger=ledger, settings=GateSettings(rules=rules))

    rules = {key: own} if own else {}
    before = judged(rules)
    refusals = [outcome for outcome in before.outcomes if outcome.refuses]
    if not refusals:  # the default only reports it
        assert key == "fragmentation_ratio"
        return
    rules = {key: followed(refusals[0], own)}
    assert judged(rules).blessed, [refusals[0].remedy, rules]


def test_of_rules_and_histories_drawn_at_random_none_is_refused_again():
    draw = random.Random(5)
    counts: collections.Counter[str] = collections.Counter()
    for _ in range(600):
        key = draw.choice([TIME, RATE, "train_loss", "input_wait_ratio"])
        rule: dict[str, float] = {"margin": draw.choice([0.01, 0.03, 0.1, 0.25])}
        if draw.random() < 0.4:
            rule["budget"] = round(rule["margin"] * draw.choice([1, 1.2, 2, 5]), 4)
        if draw.random() < 0.3:
            rule["noise"] = draw.choice([0.005, 0.1, 0.3])
        if draw.random() < 0.2:
            rule["scale"] = draw.choice([0.1, 1.0])
        if draw.random() < 0.3:
            rule["max"] = round(draw.uniform(0.05, 0.95), 2)
        usual, spread = draw.choice([0.3, 0.5, 0.9]), draw.choice([0, 0.01, 0.05])
        figures = [
            min(1.0, usual * (1 + draw.gauss(0, spread))) for _ in range(draw.randint(1, 9))
        ]
        value = min(1.0, usual * draw.choice([0.5, 0.8, 1, 1.05, 1.3, 2]))
        settings, ledger = only(**{key: rule}), ledger_of(key, figures)
        decision = evaluate(run("new", **{key: value}), ledger=ledger, settings=settings)
        refusals = [outcome for outcome in decision.outcomes if outcome.refuses]
        for refused in refusals:
            rule = rule and followed(refused, rule)
        if not refusals or rule is None:
            counts["blessed, or no number"] += 1
            continue
        settings = only(**{key: rule})
        assert evaluate(run("new", **{key: value}), ledger=ledger, settings=settings).blessed
        counts["followed"] += 1
    assert counts["followed"] > 100


def test_what_nothing_was_compared_with_is_for_a_person_to_bless():
    settings = only(**{TIME: {"margin": 0.05}})
    elsewhere = Ledger(entries=(run("a", environment=ELSEWHERE, **{TIME: 1.0}),))
    refused = refusal(TIME, 1.0, ledger=elsewhere, settings=settings)
    assert str(refused.remedy) == (
        "gate.policy.not_comparable is 'if quality holds': if the run is good, bless it, and it "
        "begins a baseline of its own."
    )
    strict = settings.policy.model_copy(update={"not_compared": "refuse"})
    settings = settings.model_copy(update={"policy": strict})
    refused = refusal(TIME, 1.0, ledger=Ledger(), settings=settings)
    assert refused.remedy.setting == "gate.policy.not_compared"


def test_a_counter_that_rose_and_a_missing_figure_have_no_number_to_follow():
    refused = refusal(
        "oom_count", 1.0, ledger=ledger_of("oom_count", [0.0]),
        settings=only(oom_count={"margin": 0.0, "budget": 1.0}),
    )  # fmt: skip
    assert refused.remedy.suggestion == "if the change is meant, bless the run"
    refused = refusal("mfu_ratio", 0.5, ledger=Ledger(), settings=only(**{TIME: {"max": 1.0}}))
    assert refused.remedy.setting == "gate.rules.step_time_seconds.optional"
    assert refused.remedy.value == "false"


def test_a_missing_loss_that_was_there_before_may_be_given_up():
    before = run("old", **{TIME: 1.0, "train_loss": 0.5, "training_memory_bytes": 1e9})
    ledger = Ledger(entries=(before,))
    candidate = run("new", **{TIME: 1.0, "training_memory_bytes": 1e9})
    decision = evaluate(candidate, ledger=ledger, settings=GateSettings())
    (refused,) = [outcome for outcome in decision.outcomes if outcome.refuses]
    assert refused.remedy.setting == "gate.rules.train_loss.optional"
    settings = GateSettings(rules={"train_loss": {"optional": True}})
    assert evaluate(candidate, ledger=ledger, settings=settings).blessed


def test_too_few_steps_are_named_with_the_setting():
    decision = evaluate(
        run("new", train_step_count=20.0, **{TIME: 1.0}),
        ledger=Ledger(),
        settings=only(**{TIME: {"max": 2.0}}),
    )
    (refused,) = [outcome for outcome in decision.outcomes if outcome.refuses]
    assert str(refused.remedy).startswith("gate.minimum_steps is 50: ")


def test_what_is_only_reported_has_no_remedy():
    rule = Rule(max=1.0, advisory=True)
    decision = evaluate(
        run("new", **{TIME: 2.0}), ledger=Ledger(), settings=only(**{TIME: rule.model_dump()})
    )
    assert decision.outcomes[0].verdict is Verdict.LIMIT
    assert decision.outcomes[0].remedy is None
