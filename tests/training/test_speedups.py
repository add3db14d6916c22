"""The declaration of a `speedup` is all that a plan, trials and training know about it.

That holds for `micro_batches`, `speedups.xla`, `xla_loop`; a `step_runner` runs their steps.
"""

import json
import types

import model_cases
import pytest
import toy_speedup

from tests import contributed, processes
from tfx_perf.components.optimized_trainer import comparisons
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.hardware import devices
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups import SPEEDUPS, onednn, xla
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning import families


@pytest.mark.slow_where("tf_keras")
def test_one_class_is_proposed_named_and_tried(keras):
    """In a separate process, in which the speedup is registered before the plan is imported."""
    child = processes.python(toy_speedup.__file__, keras.__name__, contributed.OPTIMIZATION)
    found = json.loads(processes.last_line(child))
    assert found["trials"]["Keras fit"] == "reference"
    tried = [name for name in found["trials"] if name.endswith(", uncollected")]
    assert {found["trials"][name] for name in tried} <= {"chosen", "slower"} and tried
    assert "began without NOBODY_SETS=1" in found["without_environment"]
    assert found["is_read_again"]
    assert found["step_count"] == 40


EVERYTHING = {
    "steps_per_execution": 50,
    "xla": True,
    "micro_batches": 2,
    "fused_update": True,
    "gradient_checkpointing": "auto",
    "precision": "mixed_bfloat16",
    "xla_loop": False,
    "onednn": True,
    "reduction_dtype": "bfloat16",
}


def test_the_serialized_form_of_plans_is_stable():
    plan = TrainingPlan(**EVERYTHING)
    assert plan.model_dump_json() == json.dumps(EVERYTHING, separators=(",", ":"))
    assert TrainingPlan.model_validate(EVERYTHING) == plan
    assert TrainingPlan.model_validate({}) == PLAIN_FIT  # the oldest form
    assert TrainingPlan.model_validate({"top_k_ratio": 0.01}) == PLAIN_FIT  # a removed field
    assert str(plan) == (
        "50 steps per execution, XLA, 2 micro-batches, fused update, "
        "gradient checkpointing (auto), mixed_bfloat16, oneDNN, gradients summed in bfloat16"
    )
    assert str(plan.plain) == "Keras fit, mixed_bfloat16, oneDNN, gradients summed in bfloat16"
    in_one = TrainingPlan(steps_per_execution=1, xla_loop=True, precision="mixed_float16")
    assert str(in_one) == "1 step per execution as an XLA loop, mixed_float16"


@pytest.mark.parametrize("name", SPEEDUPS)
def test_each_is_off_in_keras_fit_and_has_the_fields_of_the_plan(name):
    assert getattr(PLAIN_FIT, name) == SPEEDUPS[name].off
    assert list(TrainingPlan.model_fields) == list(SPEEDUPS) == list(EVERYTHING)


def test_after_a_divergence_the_likely_culprit_is_removed_first_and_alone():
    plan = TrainingPlan(**EVERYTHING)
    assert plan.safer == TrainingPlan(**{**EVERYTHING, "xla": False})
    assert plan.safer.safer == plan.plain
    assert plan.safer.safer.safer is None


def test_on_out_of_memory_plans_get_slices_and_no_xla_loop():
    assert PLAIN_FIT.in_slices(2, steps_per_execution=3) == TrainingPlan(
        steps_per_execution=3, micro_batches=2
    )
    in_one = TrainingPlan(steps_per_execution=5, xla_loop=True, precision="mixed_bfloat16")
    assert in_one.in_slices(8, steps_per_execution=3) == TrainingPlan(
        steps_per_execution=5, micro_batches=8, precision="mixed_bfloat16"
    )


# Speedups with their own setting, which is off by default, or that are no choice.
OWN_SETTINGS = {
    "steps_per_execution": "training.steps_per_execution",
    "micro_batches": "only after out-of-memory",
    "gradient_checkpointing": "training.gradient_checkpointing",
    "precision": "training.precision",
    "reduction_dtype": "distribution.reduction_dtype",
}
EXCLUDABLE = SPEEDUPS.keys() - OWN_SETTINGS.keys()


def excluding(*names):
    return PerfConfig.from_dict({"training": {"excluded_speedups": list(names)}})


def test_each_has_one_way_to_be_switched_off_and_other_names_are_refused():
    excluding(*EXCLUDABLE)
    for name in OWN_SETTINGS:
        with pytest.raises(errors.UserError, match=f"Received: .*{name}"):
            excluding(name)
    with pytest.raises(errors.UserError, match=r"Did you mean fused_update\?"):
        excluding("fused_updates")


EXCLUDED = "training.excluded_speedups names it"


@pytest.mark.parametrize("name", sorted(EXCLUDABLE - {"onednn"}))  # it has its own processes
def test_an_excluded_speedup_is_neither_tried_nor_used(keras, name):
    model = model_cases.dense(keras)
    model.compile("adam", "mse")
    call = model_cases.captured(model, model_cases.regression())

    def tried(settings):
        found, refused = families.families(FitLoop(call), settings=settings, step_seconds=1e-3)
        excluded = [each.plan for each in refused if each.reason == EXCLUDED]
        assert all(getattr(plan, name) for plan in excluded)
        others = [each.plan for each in refused if each.reason != EXCLUDED]
        plans = [*(plan for family in found for plan in family), *others]
        return {each.name for plan in plans for each in plan.speedups}, len(excluded)

    usual, excluded_count = tried(PerfConfig())
    left, excluded_now_count = tried(excluding(name))
    assert usual - left == {name}
    assert excluded_count == 0
    assert bool(excluded_now_count) is (name != "fused_update")  # no plan has it alone
    earlier = TrainingPlan(steps_per_execution=5, **{name: True})
    session = model_cases.session_with(earlier, training={"excluded_speedups": [name]})
    session.fit(call)
    assert session.record.plan == TrainingPlan(steps_per_execution=5)


@pytest.mark.parametrize(
    ("most", "expected"), [(50, [10, 50]), (20, [10, 20]), (13, [13]), (4, [4])]
)
def test_nearly_equal_lengths_of_calls_are_not_both_tried(most, expected):
    fit = types.SimpleNamespace(settings=PerfConfig(), most_steps_per_execution=most)
    plans = SPEEDUPS["steps_per_execution"].plans(fit, PLAIN_FIT)
    assert [plan.steps_per_execution for plan in plans] == expected


@pytest.mark.parametrize(
    ("step_seconds", "count"),
    [(0.001, 100_000), (0.0041, 47), (0.012, 10), (0.052, 2), (1.0, 1)],
    ids=["all Python", "mostly operations", "operations", "slow", "very slow"],
)
def test_a_call_is_as_long_as_its_operations_not_pythons_part(step_seconds, count):
    assert families.longest_call(step_seconds) == count


@pytest.mark.parametrize(
    ("name", "is_slow"),
    [("dense", False), ("converting", False), ("convolution", True), ("bidirectional", True)],
)
def test_xla_is_not_tried_with_layers_that_it_slows_down_on_cpus(keras, name, is_slow, monkeypatch):
    class Converter(keras.layers.Layer):
        pass

    layer = {
        "dense": lambda: keras.layers.Dense(2),
        "converting": Converter,
        "convolution": lambda: keras.layers.Conv2D(2, 3),
        "bidirectional": lambda: keras.layers.Bidirectional(keras.layers.LSTM(2)),
    }[name]()
    model = keras.Sequential([layer])
    monkeypatch.setattr(devices, "is_cpu_alone", lambda: True)
    assert (xla.slow_on_cpus(model) is not None) is is_slow
    monkeypatch.setattr(devices, "is_cpu_alone", lambda: False)
    assert xla.slow_on_cpus(model) is None


def test_xla_is_expected_to_save_less_where_only_a_cpu_trains(monkeypatch):
    def hoped(is_cpu_alone):
        monkeypatch.setattr(devices, "is_cpu_alone", lambda: is_cpu_alone)
        return SPEEDUPS["xla"].expected_saving_seconds(1.0)

    assert 0 < hoped(True) < hoped(False)


def test_onednn_is_not_compared_if_it_is_excluded(monkeypatch):
    monkeypatch.setattr(onednn, "is_open", lambda: True)
    jobs = [types.SimpleNamespace(settings=each) for each in (PerfConfig(), excluding("onednn"))]
    assert [*map(comparisons.may_try_onednn, jobs)] == [True, False]
