"""The decision over all rules."""

import math

import pydantic
import pytest
from gate_runs import ELSEWHERE, HERE, ledger_of, noisy, only, run

from tfx_perf.config.gate import GateSettings, Policy
from tfx_perf.config.rule import Rule
from tfx_perf.gate.decision import GateRecord, Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.report import gate as gate_report

KEY = "step_time_seconds"
CHANGE = only(step_time_seconds={"margin": 0.05, "budget": 0.25})
LIMIT = only(step_time_seconds={"max": 2.0})
LEDGER = ledger_of(KEY, [1.0])
ELSEWHERE_LEDGER = Ledger(entries=(run("a", environment=ELSEWHERE, step_time_seconds=1.0),))


def judged(value, *, ledger=LEDGER, settings=CHANGE, **figures):
    """Returns the decision on a run with that step time."""
    return evaluate(run("new", **{KEY: value}, **figures), ledger=ledger, settings=settings)


def test_the_first_run_is_blessed_loudly_and_limits_still_count():
    first = judged(1.0, ledger=Ledger())
    assert first.blessed
    assert first.outcomes[0].verdict is Verdict.NOT_COMPARED
    assert first.headline.startswith("Blessed unchecked")
    assert "no blessed run is on record" in first.headline
    slow = judged(3.0, ledger=Ledger(), settings=LIMIT)
    assert not slow.blessed
    assert "3.00 s" in slow.headline
    assert "2.00 s" in slow.headline


def test_a_regression_against_the_ledger_is_refused_and_an_equal_run_blessed():
    equal, worse = judged(1.0), judged(1.3)
    assert equal.blessed
    assert "Compared with 1 blessed run." in equal.headline
    assert not worse.blessed
    assert worse.headline.startswith("Refused by 1 of 1 check. step_time_seconds (regression)")
    assert worse.figures() == {
        "rule_count": 1.0, "failed_rule_count": 1.0, "baseline_run_count": 1.0,
        "cost_per_million_examples": None,
    }  # fmt: skip


def test_runs_of_another_environment_are_no_baseline_and_that_comes_first():
    ledger = Ledger(entries=(run("a", environment=ELSEWHERE, step_time_seconds=0.001),))
    record = judged(1.0, ledger=ledger)
    assert not record.blessed  # nothing was checked, though a run is on record
    assert record.outcomes[0].verdict is Verdict.NOT_COMPARABLE
    assert record.baseline_runs == ()
    assert record.differences == {"device_kind": ("A100", "CPU")}
    assert record.headline.startswith(
        "Not comparable with any blessed run (device_kind A100 -> CPU): absolute limits only."
    )
    assert not judged(3.0, ledger=ledger, settings=LIMIT).blessed


def test_of_many_differences_the_first_are_named():
    environment = {**HERE, **{f"field_{letter}": "old" for letter in "abcdefg"}}
    ledger = Ledger(entries=(run("a", environment=environment, step_time_seconds=1.0),))
    record = judged(1.0, ledger=ledger)
    assert "field_e old -> (not recorded); and 2 more): absolute limits only." in record.headline
    assert len(record.differences) == 7


def test_of_a_run_that_was_not_measured_the_cause_comes_first():
    candidate = run("b", environment={}).model_copy(update={"unmeasured": "no fit was called"})
    record = evaluate(candidate, ledger=LEDGER, settings=CHANGE)
    cause = "step_time_seconds (invalid): Nothing was measured: no fit was called"
    assert record.headline.startswith(f"Refused by 1 of 1 check. {cause}")
    assert "not recorded" not in gate_report.report_on(record).render()


def test_only_comparable_runs_and_only_the_last_of_them_count():
    old = [run(f"old{number}", step_time_seconds=5.0) for number in range(4)]
    new = [run(f"new{number}", step_time_seconds=1.0) for number in range(3)]
    ledger = Ledger(entries=(*old, *new, run("b", environment=ELSEWHERE, step_time_seconds=9.0)))
    settings = CHANGE.model_copy(update={"baseline_runs": 3})
    record = judged(1.0, ledger=ledger, settings=settings)
    assert [known.run_id for known in record.baseline_runs] == ["new0", "new1", "new2"]
    assert record.differences == {}
    assert record.outcomes[0].baseline == 1.0


@pytest.mark.parametrize("ledger", [Ledger(), LEDGER])
def test_a_missing_figure_refuses_if_the_user_wrote_the_rule_and_not_by_default(ledger):
    rule = {"mfu_ratio": Rule(margin=0.1)}
    asked = judged(1.0, ledger=ledger, settings=GateSettings(rules=rule, use_defaults=False))
    assert not asked.blessed
    assert asked.outcomes[0].verdict is Verdict.INVALID
    by_default = judged(1.0, ledger=ledger, settings=GateSettings(), training_memory_bytes=1.0)
    (found,) = [item for item in by_default.outcomes if item.metric == "mfu_ratio"]
    assert found.verdict is Verdict.NOT_CHECKED
    assert "OptimizedTrainer recorded no such figure" in found.reason
    assert by_default.blessed


@pytest.mark.parametrize("missing", ["step_time_seconds", "training_memory_bytes"])
def test_the_defaults_insist_on_time_and_memory(missing):
    figures = {"step_time_seconds": 1.0, "training_memory_bytes": 1.0}
    del figures[missing]
    assert not evaluate(run("a", **figures), ledger=Ledger(), settings=GateSettings()).blessed


def test_the_memory_of_trainings_of_an_earlier_version_is_not_compared():
    old = run("old", step_time_seconds=1.0, peak_memory_bytes=1e9)
    new = run(
        "new", minute=1, step_time_seconds=1.0, peak_memory_bytes=2e9, training_memory_bytes=5e8
    )
    record = evaluate(new, ledger=Ledger(entries=(old,)), settings=GateSettings())
    assert record.blessed
    (found,) = [item for item in record.outcomes if item.metric == "training_memory_bytes"]
    assert found.verdict is Verdict.NOT_COMPARED
    assert "peak_memory_bytes" not in {item.metric for item in record.outcomes}


@pytest.mark.parametrize(
    ("key", "value", "blessed"),
    [
        ("peak_memory_share_ratio", 0.84, True),
        ("peak_memory_share_ratio", 0.86, False),
        ("memory_leak", 0, True),
        ("memory_leak", 1, False),
    ],
)
def test_the_defaults_refuse_what_runs_out_of_memory(key, value, blessed):
    figures = {"step_time_seconds": 1.0, "training_memory_bytes": 1e9, key: value}
    record = evaluate(run("new", **figures), ledger=Ledger(), settings=GateSettings())
    assert record.blessed is blessed
    if not blessed:
        assert f"{key} (limit)" in record.headline


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_run_cannot_hold_a_figure_that_is_not_finite(value):
    with pytest.raises(pydantic.ValidationError):
        run("a", step_time_seconds=value)
    with pytest.raises(pydantic.ValidationError):
        run("a", evaluation={"auc": value})


@pytest.mark.parametrize(("steps", "blessed"), [(49.0, False), (50.0, True)])
def test_a_few_steps_are_no_measurement(steps, blessed):
    record = judged(1.0, train_step_count=steps)
    assert record.blessed is blessed
    if not blessed:
        assert record.outcomes[0].verdict is Verdict.INVALID
        assert "49 steps" in record.headline


def test_a_rule_that_older_runs_lack_is_not_compared_but_the_others_are():
    settings = only(step_time_seconds={"margin": 0.25}, train_loss={"margin": 0.1})
    record = judged(1.0, settings=settings, train_loss=0.5)
    assert record.blessed
    assert [found.verdict for found in record.outcomes] == [Verdict.PASS, Verdict.NOT_COMPARED]
    assert record.headline.startswith("Blessed: 1 of 2 checks made")


def test_a_gate_without_rules_blesses_nothing():
    record = judged(1.0, settings=only())
    assert not record.blessed
    assert "no rule" in record.headline


def test_one_refusal_outweighs_any_number_of_passes():
    settings = only(train_loss={"max": 1.0}, step_time_seconds={"max": 0.5})
    record = judged(0.6, ledger=Ledger(), settings=settings, train_loss=0.1)
    assert not record.blessed
    assert record.figures()["failed_rule_count"] == 1.0
    assert record.headline.startswith("Refused by 1 of 2 checks. step_time_seconds (limit)")


def test_an_advisory_rule_is_reported_and_never_refuses():
    settings = only(
        step_time_seconds={"margin": 0.05, "max": 0.5, "advisory": True},
        mfu_ratio={"min": 0.5, "advisory": True},
    )
    record = judged(2.0, settings=settings)
    assert record.blessed
    assert {found.verdict for found in record.outcomes} == {
        Verdict.LIMIT, Verdict.REGRESSION, Verdict.INVALID,
    }  # fmt: skip
    assert "Worse, and only reported: step_time_seconds, mfu_ratio." in record.headline
    assert "Not comparable" not in record.headline


def test_what_is_not_comparable_is_told_from_what_is_worse():
    known = Ledger(
        entries=(
            run("a", environment=ELSEWHERE, step_time_seconds=1.0),
            run("b", minute=1, train_loss=1.0),
        )
    )
    settings = only(
        step_time_seconds={"margin": 0.05, "advisory": True},
        train_loss={"margin": 0.05, "advisory": True},
    )
    record = judged(1.0, ledger=known, settings=settings, train_loss=2.0)
    assert record.headline.startswith(
        "Blessed: 1 of 2 checks made, none refused. Worse, and only reported: train_loss. "
        "Not comparable with a blessed run: step_time_seconds."
    )


@pytest.mark.parametrize(
    ("verdict", "ledger", "settings", "value"),
    [
        ("regression", LEDGER, CHANGE, 1.5),
        ("inconclusive", ledger_of(KEY, [0.5, 1.5, 1.0]), CHANGE, 1.1),
        ("invalid", LEDGER, only(mfu_ratio={"margin": 0.1}), 1.0),
        ("not_compared", Ledger(), CHANGE, 1.0),
        ("not_comparable", ELSEWHERE_LEDGER, CHANGE, 1.0),
    ],
)
def test_each_verdict_does_what_the_policy_says(verdict, ledger, settings, value):
    for answer in ("bless", "refuse"):
        policy = Policy(**{verdict: answer})
        record = judged(
            value, ledger=ledger, settings=settings.model_copy(update={"policy": policy})
        )
        assert record.outcomes[0].verdict.value.replace(" ", "_") == verdict
        assert record.blessed is (answer == "bless")


def test_the_whole_runs_verdict_is_the_most_serious_that_refuses():
    noisy_ledger = ledger_of(KEY, [0.5, 1.5, 1.0])
    assert judged(1.0).verdict is Verdict.PASS
    assert judged(1.1, ledger=noisy_ledger).verdict is Verdict.INCONCLUSIVE
    both = only(step_time_seconds={"margin": 0.05, "max": 1.05})
    assert judged(1.1, ledger=noisy_ledger, settings=both).verdict is Verdict.LIMIT
    assert judged(1.0, settings=only()).verdict is Verdict.INVALID


def test_the_more_rules_the_stronger_the_evidence_that_each_needs():
    figures = {f"{part}_seconds": noisy(8, sd=0.02, seed=i) for i, part in enumerate(
        ["step_time", "setup_time", "compile_time", "fit_time", "step_time_p90", "step_time_p99"]
    )}  # fmt: skip
    entries = tuple(
        run(f"r{i}", **{key: values[i] for key, values in figures.items()}) for i in range(8)
    )
    candidate = run("new", **dict.fromkeys(figures, 1.0))
    rule = Rule(margin=0.01, budget=1.0, noise=0.02)
    bounds = []
    for keys in (["step_time_seconds"], list(figures)):
        settings = only(**dict.fromkeys(keys, rule))
        record = evaluate(candidate, ledger=Ledger(entries=entries), settings=settings)
        bounds.append(record.outcomes[0].highest)
    assert bounds[1] > bounds[0] * 1.01


def test_the_same_arguments_give_the_same_record_which_survives_the_disk(tmp_path):
    ledger = ledger_of(KEY, noisy(9, sd=0.02))
    record = judged(1.3, ledger=ledger)
    assert record == judged(1.3, ledger=ledger)
    record.write(tmp_path / "evaluation.json")
    assert GateRecord.read(tmp_path / "evaluation.json") == record


def test_a_gate_of_advisory_rules_alone_still_has_a_record_that_can_be_written(tmp_path):
    settings = only(step_time_seconds={"margin": 0.05, "advisory": True})
    record = judged(1.5, settings=settings)
    record.write(tmp_path / "evaluation.json")
    assert record.outcomes[0].verdict is Verdict.REGRESSION
    assert math.isfinite(record.outcomes[0].highest)


def test_a_looser_margin_of_the_step_time_holds_for_the_rate_as_well():
    settings = GateSettings(rules={KEY: Rule(margin=0.5)})

    def trained(name, seconds):
        return run(
            name, step_time_seconds=seconds, examples_per_second=64 / seconds,
            training_memory_bytes=1e9, input_wait_ratio=0.1,
        )  # fmt: skip

    ledger = Ledger(entries=tuple(trained(f"r{i}", 1 + 0.01 * i) for i in range(5)))
    within, beyond = (
        evaluate(trained("new", seconds), ledger=ledger, settings=settings)
        for seconds in (1.45, 6.0)
    )
    assert within.blessed, within.headline
    assert not beyond.blessed
    refused = {item.metric for item in beyond.outcomes if item.verdict is not Verdict.PASS}
    assert {"step_time_seconds", "examples_per_second"} <= refused


def test_memory_is_not_checked_beside_parameter_servers_but_for_a_limit():
    served = run("new", environment={**HERE, "parameter_server_count": "1"})

    def verdict(run, **rule):
        settings = only(training_memory_bytes=rule)
        return evaluate(run, ledger=Ledger(), settings=settings).outcomes[0].verdict

    assert verdict(served, margin=0.05) is Verdict.NOT_CHECKED
    assert verdict(served, max=1e9) is verdict(run("new"), margin=0.05) is Verdict.INVALID


def test_the_headline_and_the_reasons_say_what_each_figure_is_compared_with():
    entries = [
        run(f"r{number}", minute=number, step_time_seconds=seconds, trace_count=traces)
        for number, (seconds, traces) in enumerate([(4.0, 1), (4.0, 1), (1.0, 1), (1.0, 2)])
    ]
    settings = only(step_time_seconds={"margin": 0.05}, trace_count={"margin": 0.0})
    ledger = Ledger(entries=tuple(entries))
    record = judged(1.0, ledger=ledger, settings=settings, trace_count=3)
    assert record.headline.endswith(
        "4 blessed runs: a figure with their mean at its present level, a counter with the last."
    )
    baselines = {item.metric: item.baseline for item in record.outcomes if item.kind == "change"}
    assert baselines == {"step_time_seconds": 1.0, "trace_count": 2.0}
    assert "50.0% above the last blessed run's 2" in record.headline


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("rmse", 0.5, 50.0),
        ("head/mse_1", 0.5, 50.0),
        ("MAE", 0.5, 50.0),
        ("brier_score", 0.1, 0.9),
        ("false_positive_rate", 0.1, 0.9),
        ("perplexity", 5.0, 50.0),
        ("matthews_correlation_coefficient", 0.8, 0.1),
        ("recall_at_error_rate", 0.8, 0.1),
    ],
)
def test_a_much_worse_metric_is_refused_and_a_better_one_blessed(name, good, bad):
    figures = {"step_time_seconds": 1.0, "training_memory_bytes": 1e9}

    def verdict(before, now):
        known = Ledger(
            entries=tuple(
                run(f"r{i}", minute=i, evaluation={name: before}, **figures) for i in range(8)
            )
        )
        candidate = run("new", minute=9, evaluation={name: now}, **figures)
        return evaluate(candidate, ledger=known, settings=GateSettings())

    assert not verdict(good, bad).blessed
    assert f"evaluation/{name} (regression)" in verdict(good, bad).headline
    assert verdict(bad, good).blessed


def test_metrics_that_nobody_can_read_are_named_until_a_rule_says_how():
    figures = {"step_time_seconds": 1.0, "training_memory_bytes": 1e9}
    candidate = run("new", evaluation={"fraud": 0.5, "dice": 0.5, "auc": 0.5, "tp": 9}, **figures)
    record = evaluate(candidate, ledger=Ledger(), settings=GateSettings())
    assert record.unread == ("evaluation/dice", "evaluation/fraud")
    assert record.headline.endswith(
        "Not judged, as no name says which way is better: evaluation/dice, evaluation/fraud; "
        "rules: {evaluation/dice: {direction: higher, margin: 0.02}}, or lower, would."
    )
    rules = {
        "evaluation/dice": Rule(direction="higher", margin=0.02),
        "evaluation/fraud": None,
    }
    said = evaluate(candidate, ledger=Ledger(), settings=GateSettings(rules=rules))
    assert said.unread == ()
    assert "Not judged" not in said.headline


@pytest.mark.parametrize(
    ("value", "rule", "verdict"),
    [
        (1.0, {"max": 1.0}, Verdict.PASS),
        (1.0000001, {"max": 1.0}, Verdict.LIMIT),
        (1.0, {"min": 1.0}, Verdict.PASS),
        (0.9999999, {"min": 1.0}, Verdict.LIMIT),
        (1.5, {"min": 1.0, "max": 2.0}, Verdict.PASS),
        (None, {"max": 1.0}, Verdict.INVALID),
        (None, {"max": 1.0, "optional": True}, Verdict.NOT_CHECKED),
    ],
)
def test_limits_are_inclusive_and_need_a_value(value, rule, verdict):
    figures = {} if value is None else {"step_time_seconds": value}
    record = evaluate(run("a", **figures), ledger=Ledger(), settings=only(step_time_seconds=rule))
    (outcome,) = record.outcomes
    assert outcome.verdict is verdict
    assert record.blessed is (verdict in (Verdict.PASS, Verdict.NOT_CHECKED))
    assert outcome.refuses is not record.blessed


def test_a_yes_or_no_is_said_as_an_answer_and_not_as_an_amount():
    settings = only(memory_leak={"max": 0.0})
    for value, reason in (
        (0.0, "The answer is no, as it has to be."),
        (1.0, "The answer is yes, and has to be no."),
    ):
        record = evaluate(run("a", memory_leak=value), ledger=Ledger(), settings=settings)
        (outcome,) = record.outcomes
        assert outcome.reason == reason
        assert gate_report.allowed_in_words(outcome) == "no"
