"""Impossible figures: a run with one is neither blessed nor part of a baseline."""

import math

import pytest
from gate_runs import run
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfx_perf.config import PerfConfig
from tfx_perf.config.gate import GateSettings
from tfx_perf.core import errors, metrics
from tfx_perf.gate import messages
from tfx_perf.gate.decision import Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import evaluate

GOOD = {
    "step_time_seconds": 1e-3, "examples_per_second": 64e3, "training_memory_bytes": 1e9,
    "peak_memory_share_ratio": 0.4, "input_wait_ratio": 0.1, "mfu_ratio": 0.3, "trace_count": 1.0,
    "oom_count": 0.0, "train_step_count": 5000.0, "train_loss": 0.5, "validation_loss": 0.5,
}  # fmt: skip
QUALITY = {
    "evaluation/auc": 0.8, "evaluation/binary_accuracy": 0.9, "evaluation/head/precision_1": 0.8,
    "evaluation/recall": 0.8, "evaluation/binary_crossentropy": 0.4, "evaluation/mse": 0.2,
    "evaluation/matthews_correlation_coefficient": 0.5, "evaluation/perplexity": 5.0,
}  # fmt: skip
# Every value of these may be true.
_OF_ANY_VALUE = {"activation_bytes", "bytes_per_example", "footprint_bytes", *(
    key for key, metric in metrics.CATALOGUE.items() if metric.unit == "loss"
)}  # fmt: skip
KEYS = [key for key in (*metrics.CATALOGUE, *QUALITY) if key not in _OF_ANY_VALUE]


def night(name, *, minute=0, loss="", **changed):
    """Returns a good run with changes; keys of Evaluator's metrics have their prefix."""
    found = {**GOOD, **QUALITY, **changed}
    quality = {
        key.removeprefix(metrics.EVALUATION_PREFIX): value
        for key, value in found.items()
        if metrics.is_evaluation(key)
    }
    figures = {key: value for key, value in found.items() if not metrics.is_evaluation(key)}
    return run(name, minute=minute, evaluation=quality, **figures).model_copy(update={"loss": loss})


LEDGER = Ledger(entries=tuple(night(f"r{i}", minute=i) for i in range(8)))


def judged(found, *, ledger=LEDGER):
    return evaluate(found, ledger=ledger, settings=GateSettings())


@st.composite
def impossible(draw):
    key = draw(st.sampled_from(KEYS))
    lowest, highest = metrics.lookup(key).possible
    beyond = []
    if math.isfinite(lowest):
        beyond.append(st.floats(max_value=lowest, exclude_max=True, allow_infinity=False))
    if math.isfinite(highest):
        beyond.append(st.floats(min_value=highest, exclude_min=True, allow_infinity=False))
    return key, draw(st.one_of(beyond))


@given(impossible(), st.booleans())
@example(("replica_speedup_ratio", 0.0), False)
@settings(max_examples=150, deadline=None)
def test_a_run_with_an_impossible_figure_is_never_blessed(found, is_first):
    key, value = found
    found = night("new", minute=9, **{key: value})
    decision = judged(found, ledger=Ledger() if is_first else LEDGER)
    assert not decision.blessed
    assert decision.verdict is Verdict.INVALID
    (outcome,) = [item for item in decision.outcomes if item.metric == key]
    assert f"Received: {key}={value:g}," in outcome.reason
    assert "gate.policy.invalid" in "\n".join(messages.lines(decision))


@given(impossible())
@settings(max_examples=25, deadline=None)
def test_a_run_with_an_impossible_figure_is_no_baseline(found):
    key, value = found
    broken = [night(f"b{i}", minute=9 + i, **{key: value}) for i in range(2)]
    honest = night("new", minute=12)
    before = judged(honest)
    after = judged(honest, ledger=Ledger(entries=(*LEDGER.entries, *broken)))
    assert (after.blessed, after.outcomes) == (before.blessed, before.outcomes)
    assert judged(honest, ledger=Ledger(entries=tuple(broken))).blessed


@given(st.sampled_from(KEYS), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_possible_figures_are_not_called_impossible(key, share):
    lowest, highest = (min(max(end, -1e6), 1e6) for end in metrics.lookup(key).possible)
    value = min(max(lowest + share * (highest - lowest), lowest), highest)
    assert not night("new", **{key: value}).impossible


def test_a_score_may_be_off_by_rounding_and_a_percentage_reaches_100():
    figures = {"evaluation/auc": 1.0000001, "evaluation/accuracy_pct": 93.0}
    assert not night("new", **figures).impossible


def test_a_training_within_memory_already_allocated_takes_none():
    found = judged(night("new", minute=9, training_memory_bytes=0.0))  # a notebook's second one
    assert found.blessed


@pytest.mark.parametrize(
    ("loss", "is_impossible"),
    [("binary_crossentropy", True), ("MSE", True), ("poisson", False), ("", False)],
)
def test_a_negative_loss_is_impossible_if_its_name_says_so(loss, is_impossible):
    found = night("new", minute=9, loss=loss, train_loss=-3.0)
    assert ("train_loss" in found.impossible) is is_impossible
    assert judged(found).blessed is not is_impossible


def test_a_loss_that_is_not_finite_is_not_blessed_even_in_the_first_run():
    made = Run.of_training(
        None, figures={**GOOD, "train_loss": math.nan}, settings=GateSettings(), run_id="new"
    )
    assert made.not_finite == ("train_loss",)
    decision = judged(made, ledger=Ledger())
    assert "train_loss (invalid): It is NaN or infinite" in decision.headline
    assert not decision.blessed
    (outcome,) = [each for each in decision.outcomes if each.metric == "train_loss"]
    assert str(outcome.remedy).startswith("Find out where such a figure comes from")


def test_figures_of_another_version_are_left_alone():
    known = Run(run_id="a", time=LEDGER.entries[0].time, environment={}, figures={"gone_bytes": -1})
    assert not known.impossible


@pytest.mark.parametrize(
    ("key", "rule", "said"),
    [
        ("step_time_seconds", {"max": -1}, "is from 1e-09 to 1e+09"),
        ("step_time_seconds", {"max": 0}, "is from 1e-09 to 1e+09"),
        ("mfu_ratio", {"min": 30}, "is from 0 to 1"),
        ("input_wait_ratio", {"max": -0.1}, "is from 0 to 1"),
        ("evaluation/auc", {"min": 95}, "is from -1e-06 to 1"),
        ("evaluation/mse", {"max": -1}, "to inf"),
    ],
)
def test_a_rule_that_no_run_can_pass_is_refused_when_it_is_read(key, rule, said):
    with pytest.raises(errors.UserError) as caught:
        PerfConfig.from_dict({"gate": {"rules": {key: rule}}})
    ((name, value),) = rule.items()
    expected = f"a {name} that a run can pass: '{key}' "
    for words in (expected, said, f"rules.{key}={{'{name}': {value}"):
        assert words in str(caught.value)
