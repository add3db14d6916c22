"""The text of a decision: headline, circumstances, remedies, lines for a terminal."""

import collections
import random
import re

import pytest
from gate_runs import ledger_of, only, run
from perf_records import training_record

from tfx_perf.config.gate import GateSettings
from tfx_perf.core import cache_key
from tfx_perf.gate import messages
from tfx_perf.gate.decision import GateRecord, RuleResult, Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import evaluate

KEY = "step_time_seconds"
SCHEMA = "the data's schema, "
ALL = f"the code, {SCHEMA}the input plan, settings under training, settings under compilation"


@pytest.mark.parametrize(("speedup", "lines"), [(0.71, 1), (0.95, 0), (1.8, 0), (None, 0)])
def test_replicas_that_are_slower_than_one_are_reported_in_a_line(speedup, lines):
    figures = {} if speedup is None else {"replica_speedup_ratio": speedup}
    decision = evaluate(
        run("new", **{KEY: 0.01}, **figures), ledger=Ledger(), settings=only(**{KEY: {"max": 1.0}})
    )
    said = [line for line in messages.lines(decision) if "on one replica" in line]
    assert len(said) == lines
    assert not said or said[0].startswith("  0.71 times as fast as the last run on one replica:")


def test_the_report_has_the_rest_of_many_refusals():
    keys = [KEY, "mfu_ratio", "examples_per_second", "train_loss", "compile_time_seconds",
            "fit_time_seconds", "setup_time_seconds"]  # fmt: skip
    decision = evaluate(
        run("new", mfu_ratio=0.05),
        ledger=Ledger(),
        settings=only(**{key: {"min": 0.1} for key in keys}),
    )
    lines = list(messages.lines(decision))
    assert sum(line.startswith("  Remedy: ") for line in lines) == 5
    assert "  and 2 more, see the report" in lines


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, f"Unchanged since blessed run r7: {ALL}."),
        ({"code": "2", "training": "b"},
         "Changed since blessed run r7: the code, settings under training."),
        ({"unknown": "2"}, f"Unchanged since blessed run r7: {ALL}."),
    ],
)  # fmt: skip
def test_a_slower_run_says_what_changed_since_the_last_blessed_one(changed, words):
    known = {"code": "1", "data": "1", "input": "columns", "training": "a", "compilation": "a"}
    ledger = ledger_of("step_time_seconds", [1e-3] * 8)
    entries = [run.model_copy(update={"conditions": known}) for run in ledger.entries]
    ledger = Ledger(entries=tuple(entries))
    slow = run("new", minute=9, step_time_seconds=2e-3)
    slow = slow.model_copy(update={"conditions": known | changed})
    decision = evaluate(slow, ledger=ledger, settings=GateSettings())
    assert words in decision.headline
    unknown = {name: value for name, value in known.items() if name != "data"}
    entries = [run.model_copy(update={"conditions": unknown}) for run in ledger.entries]
    script = slow.model_copy(update={"conditions": unknown})
    headline = evaluate(
        script, ledger=Ledger(entries=tuple(entries)), settings=GateSettings()
    ).headline
    assert f"Unchanged since blessed run r7: {ALL.replace(SCHEMA, '')}." in headline
    slow = slow.model_copy(update={"conditions": {}})
    assert "blessed run r7" not in evaluate(slow, ledger=ledger, settings=GateSettings()).headline


def test_a_run_has_digests_of_its_conditions():
    key = {"code": "1", "data": "", "training": "settings as JSON", "keras": "3.4"}
    training = training_record(0.01).model_copy(update={"key": key})
    made = Run.of_training(training, figures={}, settings=GateSettings(), run_id="a")
    names = "code", "training"
    assert made.conditions == {name: cache_key.digest(key[name].encode()) for name in names}
    assert not Run.of_training(None, figures={}, settings=GateSettings(), run_id="a").conditions


@pytest.mark.parametrize(
    ("key", "baseline", "value", "rule", "words"),
    [
        ("training_memory_bytes", 100.0 * 2**20, 112.0 * 2**20,
         {"tolerance": 0.05, "min_baseline": 2**31}, "(+12.0%)"),
        ("train_loss", 0.01, 1.3, {"tolerance": 0.05, "min_baseline": 0.1}, "(130.0 times)"),
        ("train_loss", -0.15, 0.3, {"tolerance": 0.05}, "(+300.0%)"),
    ],
)  # fmt: skip
def test_a_change_is_a_share_of_the_baseline_in_any_unit(key, baseline, value, rule, words):
    decision = evaluate(
        run("new", **{key: value}), ledger=ledger_of(key, [baseline] * 3),
        settings=only(**{key: rule}),
    )  # fmt: skip
    assert words in list(messages.lines(decision))[1]
    assert "times the baseline -" not in decision.outcomes[0].reason


TIME, RATE = "step_time_seconds", "examples_per_second"


def refusal(key: str, value: float, *, ledger: Ledger, settings: GateSettings) -> RuleResult | None:
    """Returns the only outcome that refuses, None if the run is blessed."""
    decision = evaluate(run("new", **{key: value}), ledger=ledger, settings=settings)
    found = [outcome for outcome in decision.outcomes if outcome.refuses]
    assert all((outcome in found) is (outcome.remedy is not None) for outcome in decision.outcomes)
    assert len(found) <= 1
    return found[0] if found else None


def followed(outcome: RuleResult, rule: dict[str, float]) -> dict[str, float] | None:
    """Returns the rule changed as the remedy suggests, None if it names no number."""
    changed, words = dict(rule), outcome.remedy.suggestion
    if limit := re.search(r"^([\d.e+-]+) would let", words):
        changed[outcome.remedy.setting.rpartition(".")[2]] = float(limit[1])
    elif tolerance := re.search(r"tolerance: ([\d.e+-]+)", words):
        changed["tolerance"] = float(tolerance[1])
        if max_regression := re.search(r"max_regression: ([\d.e+-]+)", words):
            changed["max_regression"] = float(max_regression[1])
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
        (TIME, {"max": 0.17}, 0.7200000000000001, Verdict.LIMIT),
        ("memory_leak", {"max": 0.0}, 1.0, Verdict.LIMIT),
        ("input_wait_ratio", {"max": 0.3}, 0.996, Verdict.LIMIT),
        ("mfu_ratio", {"min": 0.1}, 0.0, Verdict.LIMIT),
        (TIME, {"tolerance": 0.03, "expected_std": 0.1}, 1.01, Verdict.INCONCLUSIVE),
        (RATE, {"tolerance": 0.03, "expected_std": 0.1}, 0.99, Verdict.INCONCLUSIVE),
    ],
)
def test_following_the_remedy_lets_the_run_pass(key, rule, value, verdict):
    ledger = ledger_of(key, [1.0, 1.0, 1.0])
    refused = refusal(key, value, ledger=ledger, settings=only(**{key: rule}))
    assert refused.verdict is verdict
    settings = only(**{key: followed(refused, rule)})
    assert refusal(key, value, ledger=ledger, settings=settings) is None


@pytest.mark.parametrize("rule", [{"tolerance": 0.05, "max_regression": 0.06}, {"tolerance": 0.02}])
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
        (TIME, 1.3, {}), (TIME, 1.05, {"expected_std": 0.1}), (RATE, 70.0, {"max": 1e9}),
        ("train_loss", 0.9, {}), ("xla_compile_success_ratio", 0.5, {"advisory": False}),
        ("peak_memory_share_ratio", 0.995, {}), ("memory_leak", 1.0, {}),
    ],
)  # fmt: skip
def test_the_remedy_holds_beside_the_default_rules(key, value, own):
    usual = {TIME: 1.0, RATE: 100.0, "train_loss": 0.5, "training_memory_bytes": 1e9}
    ledger = Ledger(entries=tuple(run(f"r{i}", minute=i, **usual) for i in range(6)))
    candidate = run("new", minute=9, **{**usual, key: value})

    def judged(rules: dict[str, dict[str, float]]) -> GateRecord:
        return evaluate(candidate, ledger=ledger, settings=GateSettings(rules=rules))

    rules = {key: own} if own else {}
    before = judged(rules)
    refusals = [outcome for outcome in before.outcomes if outcome.refuses]
    if not refusals:  # the default rule only reports it
        assert key == "xla_compile_success_ratio"
        return
    rules = {key: followed(refusals[0], own)}
    assert judged(rules).blessed, [refusals[0].remedy, rules]


def test_remedies_of_random_rules_and_histories_are_not_refused_again():
    draw = random.Random(5)
    counts: collections.Counter[str] = collections.Counter()
    for _ in range(600):
        key = draw.choice([TIME, RATE, "train_loss", "input_wait_ratio"])
        rule: dict[str, float] = {"tolerance": draw.choice([0.01, 0.03, 0.1, 0.25])}
        if draw.random() < 0.4:
            rule["max_regression"] = round(rule["tolerance"] * draw.choice([1, 1.2, 2, 5]), 4)
        if draw.random() < 0.3:
            rule["expected_std"] = draw.choice([0.005, 0.1, 0.3])
        if draw.random() < 0.2:
            rule["min_baseline"] = draw.choice([0.1, 1.0])
        if draw.random() < 0.3:
            rule["max"] = round(draw.uniform(0.05, 0.95), 2)
        usual, spread = draw.choice([0.3, 0.5, 0.9]), draw.choice([0, 0.01, 0.05])
        figures = [min(1.0, usual * (1 + draw.gauss(0, spread))) for _ in range(draw.randint(1, 9))]
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
