"""Histories that the gate judges run by run; `golden/decisions.json` holds its decisions.

`.venv/bin/python tests/gate/golden_histories.py` rewrites that file; its diff shows the
changes.
"""

import itertools
import json
import pathlib

import numpy as np
from gate_runs import run

from tfx_perf.config import PerfConfig
from tfx_perf.core import cache_key, statistics
from tfx_perf.gate import messages
from tfx_perf.gate.decision import AbRerun, Verdict
from tfx_perf.gate.ledger import Ledger, Override
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import evaluate

FILE = pathlib.Path(__file__).parent / "golden" / "decisions.json"
_FIGURES_OF_OUTCOMES = (
    "value", "baseline", "change", "change_low", "change_high", "tolerance", "lowest", "highest",
    "detectable",
)  # fmt: skip

FIGURES = {
    "training_memory_bytes": 1e9, "peak_memory_share_ratio": 0.4, "input_wait_ratio": 0.05,
    "mfu_ratio": 0.3, "trace_count": 1.0, "oom_count": 0.0, "train_step_count": 5000.0,
    "train_loss": 0.5, "validation_loss": 0.6, "peak_flops_per_second": 1e11,
}  # fmt: skip
QUALITY = {"auc": 0.8, "binary_accuracy": 0.9, "loss": 0.4}
CPU = {"device_kind": "CPU", "global_batch_size": "64", "parameter_count": "1000000"}
GPU = {**CPU, "device_kind": "A100"}


def night(number, seconds=1e-3, *, random=None, noise=0.01, environment=CPU, quality=QUALITY,
          fields=(), **figures):  # fmt: skip
    """Returns the run of a night, with that step time plus noise."""
    draw = random.normal if random else float
    seconds *= 1 + noise * draw()
    known = {
        "step_time_seconds": seconds, "examples_per_second": 64 / (1.001 * seconds),
        **FIGURES, "training_memory_bytes": 1e9 * (1 + 0.002 * draw()),
        "train_loss": 0.5 * (1 + 0.01 * draw()), **figures,
    }  # fmt: skip
    known = {key: float(f"{value:.6g}") for key, value in known.items() if value is not None}
    quality = {
        name: float(f"{value * (1 + 0.002 * draw()):.6g}") for name, value in quality.items()
    }
    made = run(
        f"night{number}", minute=60 * number, environment=environment, evaluation=quality, **known
    )
    return made.model_copy(update=dict(fields))


class Gate:
    """PerfEvaluator over the nights: runs that it blesses are the baseline of later ones."""

    def __init__(self, **settings):
        self.settings = PerfConfig.from_dict({"gate": settings}).gate
        self.ledger = Ledger()
        self.random = np.random.default_rng(7)

    def nights(self, count=8, *args, **fields):
        """Adds healthy nights without judging them."""
        for _ in range(count):
            made = night(len(self.ledger.runs), *args, random=self.random, **fields)
            self.ledger = self.ledger.append(made, keep=100)
        return self

    def judge(self, made, *, ab_rerun=None):
        decision = evaluate(
            made, ledger=self.ledger, settings=self.settings, ab_rerun=ab_rerun
        )
        if decision.blessed:
            settings = self.settings
            self.ledger = self.ledger.append(
                made, keep=settings.ledger_size, pinned=settings.reference_run
            )
        return decision

    def next(self, *args, **fields):
        """Judges the next night."""
        made = night(len(self.ledger.runs), *args, random=self.random, **fields)
        return self.judge(made)

    def decide(self, kind, made):
        act = Override(kind=kind, run_id=made.run_id, who="ada", time=made.time, reason="meant")
        self.ledger = self.ledger.merge(Ledger(entries=(made,), acts=(act,)))


def _interval(low, high):
    return statistics.Interval(value=(low + high) / 2, low=low, high=high)


_SHORT = {
    "train_step_count": 200.0, "step_time_median_error_ratio": 0.1, "step_time_error_ratio": 0.15,
}  # fmt: skip
_OLD_LEDGER = {
    "entries": [
        {
            "run_id": f"old{number}",
            "time": f"2025-12-0{number + 1}T00:00:00Z",
            "environment": {"device_kind": "CPU", "global_batch_size": "64",
                            "strategy": "_DefaultDistributionStrategy", "device_count": "1"},
            "figures": {"step_time_seconds": 1e-3 * (1 + 0.01 * (-1) ** number),
                        "peak_memory_bytes": 2e9, "gone_bytes": 5.0},
        }
        for number in range(4)
    ]
}  # fmt: skip


class Histories:
    """Each function yields decisions, in order; the golden file holds them."""

    def the_first_run():
        gate = Gate()
        yield gate.next()
        yield gate.next()
        yield gate.next()

    def the_first_run_beyond_a_limit():
        yield Gate().next(peak_memory_share_ratio=0.9, memory_leak=1.0)
        yield Gate(rules={"step_time_seconds": {"max": 5e-4}}).next()

    def healthy_nights():
        gate = Gate()
        for _ in range(9):
            yield gate.next()

    def steps_that_take_longer():
        for slower in (1.02, 1.04, 1.08, 1.5, 2.5):
            yield Gate().nights().next(1e-3 * slower)

    def steps_that_take_longer_after_one_run():
        for slower in (1.02, 1.08, 1.3):
            yield Gate().nights(1).next(1e-3 * slower)

    def a_busy_host():
        for slower in (1.0, 1.1, 1.3):
            yield Gate().nights(noise=0.08).next(1e-3 * slower)

    def faster_steps_and_back():
        gate = Gate().nights(6)
        for _ in range(5):
            yield gate.next(2.5e-4)
        yield gate.next(4e-4)
        yield gate.next(1e-3)

    def small_slowdowns_add_up():
        gate = Gate().nights(6)
        for number in range(14):
            yield gate.next(1e-3 * 1.015**number, noise=0.002)

    def a_pinned_anchor():
        gate = Gate(reference_run="night2", ledger_size=8).nights(6)
        for number in range(12):
            yield gate.next(1e-3 * 1.015**number, noise=0.002)

    def an_anchor_without_a_comparable_figure():
        gate = Gate(reference_run="night0").nights(1, environment=GPU).nights(6)
        yield gate.next(1.2e-3)

    def memory_that_grows():
        for size in (1.05e9, 1.2e9, 2e9, 4e9):
            yield Gate().nights().next(training_memory_bytes=size)

    def counters():
        gate = Gate().nights(trace_count=2.0)
        for count in (1.0, 2.0, 3.0):
            yield gate.next(trace_count=count, oom_count=count - 1)

    def waits_for_input():
        for share in (0.05, 0.08, 0.3):
            yield Gate().nights().next(input_wait_ratio=share)
        yield Gate().nights(input_wait_ratio=0.0).next(input_wait_ratio=0.01)

    def a_larger_share_of_a_shorter_step():
        for share in (0.09, 0.12):
            yield Gate().nights().next(4e-4, input_wait_ratio=share)
        shares = {"communication_share_ratio": 0.2, "load_imbalance_ratio": 0.1}
        replicas = CPU | {"strategy": "MirroredStrategy", "replica_count": "2", "device_count": "2"}
        gate = Gate().nights(environment=replicas, **shares)
        yield gate.next(5e-4, environment=replicas, communication_share_ratio=0.4,
                        load_imbalance_ratio=0.3, replica_speedup_ratio=0.6)  # fmt: skip

    def the_rate_changes_its_level_and_the_median_does_not():
        gate = Gate().nights(5).nights(4, examples_per_second=9e4)
        yield gate.next(examples_per_second=8.8e4)
        yield gate.next(examples_per_second=6e4)
        yield gate.next(7e-4, examples_per_second=7e4)

    def a_worse_run_that_a_person_has_blessed():
        gate = Gate().nights()
        decision = gate.next(1.5e-3)
        yield decision
        gate.decide("bless", decision.candidate)
        for factor in (1.0, 1.02, 1.3):
            yield gate.next(1.5e-3 * factor)

    def a_run_blessed_for_something_else():
        gate = Gate().nights()
        decision = gate.next(peak_memory_share_ratio=0.9)
        yield decision
        gate.decide("bless", decision.candidate)
        yield gate.next(1.1e-3)

    def a_run_that_a_person_has_withdrawn():
        gate = Gate().nights(3)
        slow = night(3, 1.2e-3, random=gate.random)
        gate.ledger = gate.ledger.append(slow, keep=100)
        yield gate.next(1.2e-3)
        gate.decide("unbless", slow)
        yield gate.next(1.2e-3)

    def another_machine():
        for seconds in (1e-3, 1.1e-3, 3e-3):
            yield Gate().nights().next(seconds, environment=GPU)
            gate = Gate().nights(quality={}, train_loss=None, validation_loss=None)
            yield gate.next(seconds, environment=GPU, quality={}, train_loss=None,
                            validation_loss=None)  # fmt: skip
        yield Gate().nights().next(environment={})
        yield Gate().nights().next(environment={**CPU, **{f"field_{i}": "new" for i in range(7)}})

    def a_baseline_of_a_machine_of_its_own():
        gate = Gate().nights()
        decision = gate.next(3e-3, environment=GPU)
        yield decision
        gate.decide("bless", decision.candidate)
        for factor in (1.0, 1.3):
            yield gate.next(3e-3 * factor, environment=GPU)
        yield gate.next()

    def another_batch_size():
        larger = {**CPU, "global_batch_size": "256"}
        for seconds in (1e-3, 3.9e-3, 9e-3):
            rate = {"examples_per_second": 256 / seconds}
            yield Gate().nights().next(seconds, environment=larger, **rate)
        yield Gate().nights().next(environment={**CPU, "global_batch_size": "16"})

    def much_worse_beside_another_environment():
        usual = CPU | {"tensorflow": "2.16.1", "python": "3.11", "data_spec": "a", "cpu_count": "2"}
        others = {"tensorflow": "2.16.2", "python": "3.12", "data_spec": "b", "cpu_count": "4"}
        for field, value in others.items():
            for seconds, memory in ((1e-2, 1e9), (1e-3, 2e10), (1.15e-3, 1e9)):
                yield Gate().nights(environment=usual).next(
                    seconds, environment={**usual, field: value}, training_memory_bytes=memory
                )

    def more_work():
        usual = {**CPU, "global_batch_size": "40", "flops_per_step": "80000000"}
        batch, model = {"global_batch_size": "4096"}, {"parameter_count": "4000000"}
        for other, *worse in (
            ({**batch, "flops_per_step": "8192000000"}, (90, 1), (140, 1)),
            (batch, (90, 60), (1, 150)),
            ({"global_batch_size": "4"}, (1, 1), (2, 1)),
            ({**model, "flops_per_step": "320000000"}, (4, 1), (6, 1)),
            (model, (1, 3.9), (1, 9)),
            ({**batch, **model}, (300, 1)),
        ):
            environment = {**usual, **other}
            for slower, larger in worse:
                rate = float(environment["global_batch_size"]) / (1e-3 * slower)
                yield Gate().nights(environment=usual, examples_per_second=4e4).next(
                    1e-3 * slower, environment=environment, examples_per_second=rate,
                    training_memory_bytes=1e9 * larger,
                )  # fmt: skip

    def a_much_larger_model():
        for field in ("parameter_count", "flops_per_step"):
            small, large = {**CPU, field: "1000000"}, {**CPU, field: "3000000"}
            for seconds in (9e-4, 2e-3, 9e-3):
                yield Gate().nights(environment=small).next(seconds, environment=large)
        gate = Gate(rules={"step_time_seconds": {"max": 1e-2}})
        yield gate.nights(environment=CPU).next(2e-3, environment=large)
        for settings in ({"rules": {"step_time_seconds": {"max": 1e-3}}},
                         {"policy": {"incomparable": "refuse"}}):  # fmt: skip
            yield Gate(**settings).nights(environment=small).next(2e-3, environment=large)
        yield Gate().nights(environment=small).next(9e-3, environment={**large, **GPU})

    def a_model_that_grows():
        gate = Gate(ledger_size=12)
        for number in range(14):
            size = 1.03**number
            environment = {**CPU, "parameter_count": f"{1e6 * size:.0f}",
                           "flops_per_step": f"{3e6 * size:.0f}"}  # fmt: skip
            yield gate.next(1e-3 * size**0.7, environment=environment,
                            training_memory_bytes=1e9 * size)  # fmt: skip
        yield gate.next(2.2e-3, environment=environment)

    def measured_again():
        rules = {"step_time_seconds": {"tolerance": 0.03, "max_regression": 0.1}}
        for low, high in ((0.97, 1.02), (1.01, 1.09), (1.04, 1.06), (1.01, 1.12), (13.9, 14.3)):
            ratio = AbRerun(against="night7", ratio=_interval(low, high))
            for noise, slower in ((0.3, 1.0), (0.01, 1.5)):
                gate = Gate(rules=rules, rerun_seconds=60).nights(noise=noise)
                made = night(8, 1e-3 * slower)
                yield gate.judge(made, ab_rerun=ratio)
        gate = Gate(rerun_seconds=60).nights(noise=0.3)
        yield gate.judge(night(8), ab_rerun=AbRerun(reason="the code is gone"))

    def a_drift_measured_again():
        for low, high in ((0.99, 1.0), (1.1, 1.2)):
            rule = {"tolerance": 0.03, "max_regression": 0.05}
            gate = Gate(rules={"step_time_seconds": rule}).nights(6)
            for number in range(4):
                gate.nights(1, 1e-3 * 1.02**number)
            ratio = AbRerun(against="night9", ratio=_interval(low, high))
            yield gate.judge(night(10, 1.1e-3), ab_rerun=ratio)

    def short_trainings():
        for slower in (0.9, 1.0, 1.2, 2.0):
            yield Gate().nights(4, **_SHORT).next(1e-3 * slower, **_SHORT)
            yield Gate().nights(4).next(1e-3 * slower, **_SHORT)
        yield Gate().nights(1, **_SHORT).next(1.05e-3)

    def a_mean_that_a_stall_is_in():
        ratios = {"train_step_count": 500.0, "step_time_median_error_ratio": 0.002,
                  "step_time_error_ratio": 0.2}  # fmt: skip
        yield Gate().nights(4).next(**ratios, examples_per_second=4.5e4)
        yield Gate(price_per_hour=3).nights(4, cost_per_million_examples=0.01).next(
            **ratios, examples_per_second=4.5e4, cost_per_million_examples=0.014
        )

    def too_few_steps():
        yield Gate().nights().next(train_step_count=30.0)
        yield Gate(minimum_steps=0).nights().next(train_step_count=30.0)

    def interrupted_trainings():
        yield Gate().nights().next(resumed_step=4000.0, train_step_count=1000.0, trace_count=5.0)
        yield Gate().nights().next(resumed_step=4980.0, train_step_count=20.0)
        yield Gate().nights(4, resumed_step=10.0).next(trace_count=3.0)

    def missing_figures():
        for key in ("step_time_seconds", "training_memory_bytes", "train_loss", "mfu_ratio"):
            yield Gate().nights().next(**{key: None})
        yield Gate().nights().next(quality={"auc": 0.8})
        own = {"train_loss": {"optional": True}, "mfu_ratio": {"min": 0.1, "optional": False}}
        yield Gate(rules=own).nights().next(train_loss=None, mfu_ratio=None)
        served = {**CPU, "parameter_server_count": "2"}
        yield Gate().nights(environment=served, training_memory_bytes=None).next(
            environment=served, training_memory_bytes=None
        )

    def a_run_that_was_not_measured():
        fields = {"unmeasured": "no fit was called", "figures": {}, "environment": {}}
        yield Gate().nights().next(fields=fields)
        yield Gate().next(fields=fields)
        yield Gate().nights().next(fields={**fields, "is_of_script": True, "unmeasured": ""})

    def impossible_figures():
        yield Gate().nights().next(mfu_ratio=1.7)
        yield Gate().nights().next(quality={"auc": 1.7})
        yield Gate().nights().next(fields={"not_finite": ("train_loss",)}, train_loss=None)
        gate = Gate().nights(2, mfu_ratio=1.7)
        yield gate.next()
        made = Run.of_training(None, figures=FIGURES, settings=gate.settings, run_id="a")
        yield gate.judge(made.model_copy(update={"time": night(9).time}))

    def worse_quality():
        for auc in (0.79, 0.75, 0.5):
            yield Gate().nights().next(quality={**QUALITY, "auc": auc})
        for loss in (0.55, 0.8):
            yield Gate().nights().next(train_loss=loss, validation_loss=loss)
        yield Gate().nights().next(environment=GPU, quality={**QUALITY, "auc": 0.6})

    def quality_on_other_data_every_night():
        random = np.random.default_rng(3)
        gate = Gate()
        for level in 0.8 * (1 + 0.03 * random.normal(size=14)):
            yield gate.next(quality={"auc": float(level), "loss": float(1.2 - level)})
        yield gate.next(quality={"auc": 0.7, "loss": 0.5})

    def beside_a_baseline_model():
        gate = Gate()
        for number in range(8):
            fields = {"evaluation_gains": {"auc": 0.001 * (-1) ** number, "loss": 0.0}}
            yield gate.next(fields=fields)
        yield gate.next(fields={"evaluation_gains": {"auc": -0.05, "loss": 0.2}})
        yield Gate().next(fields={"evaluation_gains": {"auc": 0.01}})

    def metrics_that_nobody_can_read():
        quality = {**QUALITY, "revenue": 5.0, "uplift": 2.0}
        yield Gate().nights(quality=quality).next(quality=quality)
        rules = {"evaluation/revenue": {"direction": "higher", "tolerance": 0.02},
                 "evaluation/uplift": None}  # fmt: skip
        yield Gate(rules=rules).nights(quality=quality).next(quality={**quality, "revenue": 4.0})
        rules = {"evaluation/auc": {"direction": "lower", "tolerance": 0.02}}
        yield Gate(rules=rules).nights().next(quality={**QUALITY, "auc": 0.9})

    def trainings_of_other_lengths_and_losses():
        yield Gate().nights().next(train_step_count=500.0, train_loss=0.9)
        yield Gate().nights().next(train_step_count=5100.0, train_loss=0.53)
        for steps, loss in ((500.0, 50.0), (5e4, 0.6), (5e4, 0.9), (None, 50.0)):
            losses = {"train_loss": loss, "validation_loss": loss}
            yield Gate().nights().next(train_step_count=steps, **losses)
        loss = {"loss": "mse"}
        yield Gate().nights(fields=loss).next(fields={"loss": "mae"}, train_loss=0.9)
        yield Gate().nights(fields=loss).next(fields=loss, train_loss=-1.0)

    def rules_of_ones_own():
        rules = {
            "step_time_seconds": {"tolerance": 0.05, "max_regression": 0.5, "expected_std": 0.02},
            "examples_per_second": None,
            "mfu_ratio": {"min": 0.35},
            "training_memory_bytes": {"max": 9e8, "advisory": True},
            "peak_memory_share_ratio": {"min": 0.2, "max": 0.6},
            "trace_count": {"max": 4, "tolerance": 1},
            "memory_leak": {"max": 0.0, "optional": False},
            "evaluation/auc": {"min": 0.85, "tolerance": 0.1},
        }
        for seconds in (1e-3, 1.2e-3, 1.7e-3):
            yield Gate(rules=rules).nights(memory_leak=0.0).next(seconds, memory_leak=1.0)

    def rules_alone():
        for rules in (
            {},
            {"step_time_seconds": {"max": 2e-3}},
            {"step_time_seconds": {"tolerance": 0.05, "advisory": True}},
            {"input_wait_ratio": {"tolerance": 0.5, "min_baseline": 0.01}},
            {"memory_leak": {"max": 0.0}, "step_time_seconds": {"min": 1e-4, "tolerance": 0.1}},
        ):
            for seconds in (1e-3, 3e-3):
                gate = Gate(rules=rules, use_defaults=False)
                yield gate.nights(memory_leak=0.0).next(seconds, memory_leak=0.0)

    def a_looser_step_time_loosens_what_follows():
        rules = {"step_time_seconds": {"tolerance": 0.3, "max_regression": 0.5}}
        for seconds in (1.2e-3, 1.6e-3):
            yield Gate(rules=rules, price_per_hour=2).nights(cost_per_million_examples=0.01).next(
                seconds, cost_per_million_examples=10 * seconds
            )

    def policies():
        everything = ("regression", "inconclusive", "invalid", "incomparable", "no_baseline")
        for answer in ("bless", "refuse"):
            policy = dict.fromkeys(everything, answer)
            yield Gate(policy=policy).next()
            bad = {"mfu_ratio": 1.5, "peak_memory_share_ratio": 0.9}
            yield Gate(policy=policy).nights().next(1.5e-3, **bad)
            yield Gate(policy=policy).nights(2, noise=0.3).next(step_time_seconds=1.2e-3)
            yield Gate(policy=policy).nights().next(3e-3, environment=GPU)

    def few_baseline_runs():
        gate = Gate(baseline_runs=2, ledger_size=3).nights(6)
        for slower in (1.0, 1.03, 1.06, 1.1, 1.2):
            yield gate.next(1e-3 * slower)

    def another_false_alarm_rate():
        for rate in (1e-4, 0.3):
            yield Gate(false_alarm_rate=rate).nights().next(1.05e-3)

    def a_slower_machine_and_another_plan():
        plain, quick = {"plan": "Keras fit"}, {"plan": "50 steps per execution"}
        lack = {**plain, "budget_lack": "2 plans were not tried"}
        for settings in ({}, {"rerun_seconds": 60}):
            for fields in (plain, quick, lack, {**lack, "is_of_script": True}):
                gate = Gate(**settings).nights(fields=quick)
                yield gate.next(1.4e-3, fields=fields, peak_flops_per_second=5e10)
        yield Gate().nights(fields=quick).next(1e-3, fields=plain, peak_flops_per_second=5e10)
        for fields in ({**lack, **quick}, {"plan": ""}):
            yield Gate().nights(fields=quick).next(2e-3, fields=fields)

    def one_training_judged_again_and_from_cache():
        gate = Gate().nights()
        fields = {"artifact": "a", "node": "gate", "pipeline": "taxi"}
        yield gate.next(1.02e-3, fields=fields)
        yield gate.judge(night(20, 1.02e-3, fields=fields))
        yield gate.judge(night(21, 1.3e-3, fields={**fields, "artifact": "b"}))
        yield gate.judge(night(22, 1.3e-3, fields={**fields, "node": "other"}))

    def a_ledger_of_an_earlier_version():
        environment = {
            "device_kind": "CPU", "global_batch_size": "64", "strategy": "one_device",
            "device_count": "1", "replica_count": "1", "worker_count": "1", "host_count": "1",
        }  # fmt: skip
        for seconds in (1e-3, 1.3e-3):
            gate = Gate()
            gate.ledger = Ledger.model_validate(_OLD_LEDGER)
            yield gate.next(seconds, environment=environment)

    def energy_and_what_is_only_reported():
        once = {
            "energy_per_example_joules": 0.01, "compile_share_ratio": 0.02,
            "fragmentation_ratio": 0.1,
            "time_to_first_step_seconds": 10.0, "xla_compile_success_ratio": 1.0,
        }  # fmt: skip
        worse = {
            "energy_per_example_joules": 0.02, "compile_share_ratio": 0.4,
            "fragmentation_ratio": 0.5,
            "time_to_first_step_seconds": 30.0, "xla_compile_success_ratio": 0.5,
        }  # fmt: skip
        for figures in (once, worse):
            yield Gate().nights(**once).next(**figures)


HISTORIES = {
    name.replace("_", " "): made for name, made in vars(Histories).items() if name[0] != "_"
}


def decisions(name):
    """Returns a summary of a history's decisions, and the last one line by line."""
    found = []
    for decision in HISTORIES[name]():
        digest = cache_key.digest("\n".join(in_lines(decision, decision.outcomes)).encode())
        found.append(f"{decision.verdict.value} {digest}: {decision.headline}")
    return [*found, list(in_lines(decision, filter(_is_answered, decision.outcomes)))]


def _is_answered(outcome):
    return outcome.verdict is not Verdict.SKIPPED


def in_lines(decision, outcomes):
    """Yields the lines of a decision with the figures and sentences of these outcomes."""
    for outcome in outcomes:
        figures = " ".join(_shown(getattr(outcome, name)) for name in _FIGURES_OF_OUTCOMES)
        flags = "".join(f", {name}" for name in ("refuses", "advisory") if getattr(outcome, name))
        yield f"{outcome.metric} {outcome.kind} {outcome.verdict.value}{flags} {figures}"
        yield outcome.reason
        if outcome.remedy:
            yield str(outcome.remedy)
        if outcome.shortness:
            yield f"{outcome.shortness.factor:.6g} {outcome.shortness.is_of_baseline}"
    yield from itertools.islice(messages.lines(decision), 1, None)
    yield ", ".join(run.run_id for run in decision.baseline_runs)
    yield f"{decision.differences} {decision.unread} {decision.host_factor:.6g}"


def _shown(figure):
    if figure is None:
        return "-"
    # Processors differ in the last bits: in the remainder of a difference of equal figures, and in
    # which way the mean of two short figures is rounded.
    return f"{figure * (1 + 1e-9) if abs(figure) > 1e-12 else 0:.6g}"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    made = {name: decisions(name) for name in HISTORIES}
    FILE.write_text(json.dumps(made, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
