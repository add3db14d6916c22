"""Tuning in a child that crashes or hangs (`supervision`), and plans that are reused."""

import importlib
import logging
import pathlib
import sys
import time

import pytest
import training_cases
from gated_project import artifact_in
from perf_records import training_record
from tfx import v1 as tfx
from tfx.types import standard_artifacts
from tfx.utils import json_utils

from tests.local_pipeline import LocalPipeline
from tfx_perf.components import OptimizedTrainer, latest_metrics, training_job, types
from tfx_perf.components.optimized_trainer import executor, supervision
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, statistics
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning.choice import StrategyChoice, TrialProgress, TrialRecord
from tfx_perf.training.tuning.earlier import KnownPlan
from tfx_perf.training.tuning.families import same_function

pytestmark = pytest.mark.each_choice

# A layer that ends its process when XLA compiles it, which Python code cannot catch.
ABORTS_UNDER_XLA = f"""
import os
from tensorflow.python.ops import control_flow_util

from tests import busy_machine
busy_machine.try_the_same_plans()

class Fragile(keras.layers.Layer):
    def call(self, inputs):
        graph = tf.compat.v1.get_default_graph()
        is_compiled = control_flow_util.GraphOrParentsInXlaContext(graph)
        if is_compiled and {training_cases.ONLY_MEASURES}:
            os.abort()
        return inputs
"""
# The same, but by a signal from outside, and once.
TOLD_UNDER_XLA = ABORTS_UNDER_XLA.replace(
    "os.abort()", """
            import pathlib, signal, time
            try:
                pathlib.Path({file!r}).touch(exist_ok=False)
            except FileExistsError:
                return inputs
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)""".lstrip()
)  # fmt: skip
# Settings whose trials are soon given up.
SOON = """
from tfx_perf.training.tuning import cost_model

cost_model._LIMIT_BUDGETS, cost_model._LIMIT_SECONDS = 0, 2
"""
# Code with its own timer and standard error.
OWN_TIMER = """
import io, signal, sys

sys.stderr = io.StringIO()
rings = []
signal.signal(signal.SIGALRM, lambda number, frame: rings.append(number))
signal.setitimer(signal.ITIMER_REAL, 1000)
"""
CHECKS_TIMER = """assert signal.getitimer(signal.ITIMER_REAL)[0] > 100
    assert callable(signal.getsignal(signal.SIGALRM))
    signal.setitimer(signal.ITIMER_REAL, 0)
    tf.saved_model.save(model, fn_args.serving_model_dir)"""
# A layer whose trace never ends in the process of the trials.
ENDLESS_LAYER = f"""{SOON}
import os, time

class Endless(keras.layers.Layer):
    def call(self, inputs):
        if {training_cases.ONLY_MEASURES}:
            time.sleep(600)
        return inputs
"""
# Data that never arrive in the separate process in which data that call Python are tried.
ENDLESS_DATA = f"""{SOON}
import os, time

def wait(x, y):
    if not {training_cases.ONLY_MEASURES}:
        return x, tf.ensure_shape(tf.py_function(tf.identity, [y], y.dtype), y.shape)
    with tf.control_dependencies([tf.py_function(lambda: time.sleep(600), [], [])]):
        return x, tf.identity(y)
"""
WAITS = training_cases.FIT.replace("train,", "train.map(wait),", 1)


AMPLE = {"expected_runs": 10**6, "tuning_seconds": 60, "steps_per_execution": (10,)}


@pytest.mark.slow
def test_a_crash_costs_only_the_plans_that_crash(trainer):
    module = {"beginning": ABORTS_UNDER_XLA, "layer": "Fragile()"}
    crashing = [
        "10 steps per execution, XLA, fused update",
        "10 steps per execution as an XLA loop",
    ]
    trainer.run(module=module, **AMPLE)
    record, folder = trainer.record, pathlib.Path(trainer.perf_metrics.uri)
    trials = {str(trial.plan): trial for trial in record.trials}
    for crashed in map(trials.get, crashing):
        assert (crashed.status, crashed.reason) == ("failed", "its process crashed (SIGABRT)")
    assert (
        trials["10 steps per execution, fused update"].step_time and trials["Keras fit"].step_time
    )
    assert len(trials) == 2 + len(crashing)
    assert record.is_settled
    assert record.train_step_count == 120
    logs = {path.name for path in folder.glob("*.log")}
    assert logs == {"trials.log", *(f"trials-{n + 2}.log" for n in range(len(crashing)))}


@pytest.mark.slow
def test_a_terminated_process_does_not_count_against_its_plan(trainer, tmp_path):
    told = tmp_path / "told"
    module = {"beginning": TOLD_UNDER_XLA.format(file=str(told)), "layer": "Fragile()"}
    trainer.run(module=module, **AMPLE)
    assert told.exists()
    trials = {str(trial.plan): trial for trial in trainer.record.trials}
    assert trials["10 steps per execution as an XLA loop"].step_time
    assert not [trial for trial in trials.values() if trial.status == "failed"]
    folder = pathlib.Path(trainer.perf_metrics.uri)
    assert {path.name for path in folder.glob("*.log")} == {"trials.log", "trials-2.log"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "place"),
    [
        ({"beginning": ENDLESS_LAYER, "layer": "Endless()"}, "call"),
        ({"beginning": ENDLESS_DATA, "train": WAITS}, "equivalence"),
    ],
    ids=["layer", "data"],
)
def test_trials_that_hang_cost_their_time_and_the_training_runs(trainer, caplog, module, place):
    trainer.run(module=module)
    record = trainer.record
    assert record.plan_reason == "the trials failed: their process ran out of time (SIGALRM)"
    assert (record.plan.is_plain_fit, record.train_step_count) == (True, 120)
    assert not record.is_settled
    log = pathlib.Path(trainer.perf_metrics.uri, "trials.log")
    assert place in log.read_text()  # where it hung
    assert str(log) in caplog.text


def test_every_process_may_be_lost_in_its_trials_and_the_training_still_starts(tmp_path):
    job = training_job.TrainingJob(
        inputs="{}",
        exec_properties={"config": PerfConfig().to_json()},
        code="",
        plan=TrainingPlan(),
    )
    trials = supervision._SupervisedTrials(
        job, KnownPlan(key={"code": "1"}), folder=str(tmp_path), log_folder=tmp_path
    )
    lost = [TrainingPlan(steps_per_execution=count) for count in (10, 20, 50)]
    for plan in lost:
        order = trials.begin()
        assert order.are_open
        TrialProgress(began=time.time(), running=(plan,), finished=order.known.trials).write(
            order.progress_file
        )
        trials.after_loss(errors.ProcessEndedError("The trials", "crashed (SIGABRT)"))
    order = trials.begin()
    assert not order.are_open
    assert order.known.choice.plan.is_plain_fit
    assert [trial.plan for trial in order.known.choice.trials] == lost


def test_the_users_timer_and_standard_error_are_left_alone(trainer):
    trainer.run(
        module={"beginning": OWN_TIMER, "save": CHECKS_TIMER},
        compilation={"enabled": False},
        steps_per_execution=(10,),
    )
    assert trainer.record.trials
    assert not trainer.record.trials_failed


SECOND_FIT = f"""open({{file!r}}, "a").write("begun ")
    {training_cases.FIT}
    twice = train.unbatch().batch(20).map(identity)
    model.fit(twice, steps_per_epoch=600, verbose=0)"""
CALLS_PYTHON = """
def identity(x, y):
    return x, tf.ensure_shape(tf.py_function(tf.identity, [y], y.dtype), y.shape)
"""


def test_a_later_fit_that_lacks_a_process_does_not_repeat_the_one_before(trainer, tmp_path):
    begun = tmp_path / "begun"
    trainer.run(
        module={"beginning": CALLS_PYTHON, "train": SECOND_FIT.format(file=str(begun))},
        compilation={"enabled": False},
        steps_per_execution=(10,),
    )
    assert begun.read_text() == "begun "
    assert trainer.record.train_step_count == 600
    assert trainer.record.plan_reason.startswith("the data or the step call Python")


@pytest.fixture
def run(tmp_path, monkeypatch, onednn_decided):
    """Trains once in a pipeline; returns the execution's state, the artifact and its record."""
    trainer, pipeline = training_cases.Trainer(tmp_path), LocalPipeline(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def once(label, *, expected_runs=10**6, **module):
        path = trainer.write_module(**module)
        sys.modules.pop(path.stem, None)  # edited code would be imported again in another process
        importlib.invalidate_caches()
        examples, schema = training_cases.imported(tmp_path)
        metrics = latest_metrics(examples.outputs["result"], run_label=label)
        training = OptimizedTrainer(
            examples=examples.outputs["result"],
            schema=schema.outputs["result"],
            run_fn=f"{path.stem}.run_fn",
            train_args=tfx.proto.TrainArgs(num_steps=120),
            eval_args=tfx.proto.EvalArgs(num_steps=2),
            previous_metrics=metrics.outputs["previous_metrics"],
            run_label=label,
            config={
                "training": {"tuning_seconds": 60},
                "compilation": {"enabled": False},
                "schedule": {"expected_runs": expected_runs},
            },
        )
        pipeline.run([examples, schema, metrics, training])
        state, outputs = pipeline.last(OptimizedTrainer)
        (artifact,) = (item for item in outputs if item.type == types.PerfMetrics.TYPE_NAME)
        return state, artifact, TrainingRecord.read(pathlib.Path(artifact.uri, "metrics.json"))

    return once


@pytest.mark.slow
def test_after_an_edit_a_plan_is_tried_again_though_the_training_is_short(run):
    *_, first = run("one")
    assert not first.plan.is_plain_fit
    *_, second = run("two", expected_runs=1, beginning="# edited")
    assert second.reused_from is None
    statuses = {t.status for t in second.trials if same_function(t.plan, first.plan)}
    assert statuses & {"chosen", "slower"}


@pytest.mark.slow
def test_plans_are_reused_in_a_pipeline(run):
    state, measured, first = run("one")
    assert (state, first.reused_from, first.is_settled) == ("COMPLETE", None, True)
    assert first.trials
    assert first.trial_time_seconds > 0
    state, cached, _ = run("one")
    assert (state, cached.id) == ("CACHED", measured.id)

    state, reused, second = run("two")
    assert state == "COMPLETE"
    assert second.reused_from == measured.uri
    assert reused.custom_properties["reused_from"].string_value == measured.uri
    assert (second.plan, second.trials, second.key) == (first.plan, first.trials, first.key)
    assert second.trial_time_seconds == 0.0
    assert not pathlib.Path(reused.uri, "trials.log").exists()
    state, cached, _ = run("two")
    assert (state, cached.id) == ("CACHED", reused.id)


_FEATURE = """
feature { name: "city" type: INT presence { min_fraction: %(share)s min_count: %(count)d }
          shape { dim { size: %(size)d } } int_domain { min: -1 max: %(max)d } }
string_domain { name: "word" value: "%(word)s" }
"""
_VALUES = {"share": 1.0, "count": 10, "size": 1, "max": 12, "word": "a"}


@pytest.mark.parametrize(
    ("change", "is_another"),
    [
        ({"count": 11, "max": 13, "word": "b"}, False),  # the values of another day
        ({"size": 2}, True),
        ({"share": 0.5}, True),  # parsed in another way
    ],
)
def test_the_form_of_examples_is_in_the_key_not_their_values(change, is_another, tmp_path):
    digests = set()
    for number, values in enumerate((_VALUES, {**_VALUES, **change})):
        schema = artifact_in(tmp_path / str(number), standard_artifacts.Schema)
        pathlib.Path(schema.uri, "schema.pbtxt").write_text(_FEATURE % values)
        digests.add(executor._schema_digest({"schema": [schema]}))
    assert len(digests) == 1 + is_another


class TestPrevious:
    """Which earlier results are reused, and which are not."""

    KEY = {"code": "1", "host": "2"}

    def of(self, items, *, key=KEY):
        """Returns the knowledge from runs with these artifacts."""
        job = training_job.TrainingJob(
            inputs=json_utils.dumps({"previous_metrics": items}),
            exec_properties={"config": PerfConfig().to_json()},
            code="",
            plan=TrainingPlan(),
        )
        return executor.earlier_choices(job, key)

    @pytest.fixture
    def made(self, tmp_path):
        """Creates an artifact of that name in a folder; later artifacts are newer."""
        ids = iter(range(100))

        def make(name, **fields):
            item = artifact_in(tmp_path / name, types.PerfMetrics)
            item.id = next(ids)
            fields = {"key": self.KEY, "is_settled": True, "trial_time_seconds": 9.0, **fields}
            record = training_record(0.1).model_copy(update={"plan_reason": name, **fields})
            record.write(tmp_path / name / "metrics.json")
            return item

        return make

    def test_the_newest_with_the_same_key_is_used(self, made, caplog):
        caplog.set_level(logging.INFO)
        items = [made("a"), made("b"), made("c", key={"code": "0", "host": "2"}), made("missing")]
        (pathlib.Path(items[-1].uri) / "metrics.json").unlink()
        found = self.of(items).plan(expected_runs=2)
        assert (found.plan_reason, found.reused_from) == ("b", items[1].uri)
        assert found.trial_time_seconds == 0.0
        assert f"The plan in {items[2].uri} is not used again: code 0 -> 1." in caplog.text
        assert "plan is skipped" in caplog.text
        found = self.of([made("d", reused_from="/first")]).plan(expected_runs=2)
        assert found.reused_from == "/first"  # it still names the run that measured

    def test_unfinished_trials_are_repeated(self, made, caplog):
        caplog.set_level(logging.INFO)
        items = [made("a"), made("b", is_settled=False)]
        assert self.of(items).plan(expected_runs=2) is None
        assert "trials may find a better" in caplog.text

    def test_the_measured_strategy_holds_though_trials_may_find_another_plan(self, made):
        speedup = statistics.Interval(value=2.0, low=1.5, high=2.5)
        measured = StrategyChoice(
            name="multi_worker", worker_count=2, reason="faster", speedup=speedup, key=self.KEY
        )
        failed = StrategyChoice(name="one_device", reason="no memory", key=self.KEY)
        of_others = measured.model_copy(update={"name": "mirrored", "key": {"code": "0"}})
        items = [
            made("a", strategy=measured, is_settled=False),
            made("b", strategy=failed),
            made("c", strategy=of_others),
            made("d"),
        ]
        assert self.of(items).strategy == measured
        assert self.of(items[1:]).strategy is None

    def test_plans_that_the_code_failed_in_are_known_to_repeated_trials(self, made):
        way = TrainingPlan(precision="mixed_bfloat16")
        raised = TrialRecord(plan=way, status="failed", reason="raised it", may_pass=False)
        killed = raised.model_copy(update={"may_pass": True})
        lost = made("a", trials=(raised,), is_settled=False)
        other_code = made("b", trials=(killed,), key={"code": "0"})
        assert self.of([lost, other_code]).comparison([way]).tried == (raised,)
        assert self.of([lost], key={"code": "0"}).comparison([way]) is None
        assert self.of([lost]).comparison([way, TrainingPlan(onednn=True)]) is None
        assert self.of([lost, made("c", trials=(killed,))]).comparison([way]) is None

    @pytest.mark.parametrize(("expected_runs", "is_used"), [(4, True), (5, False), (6, False)])
    def test_more_runs_may_be_worth_more_trials(self, made, expected_runs, is_used):
        items = [made("a", enough_runs=5)]
        found = self.of(items).plan(expected_runs=expected_runs)
        assert (found is not None) == is_used

    def test_the_previous_plan_is_known_in_the_form_of_trials(self, made):
        plan = TrainingPlan(steps_per_execution=50, xla_loop=True)
        with_onednn = made("a", plan=plan.model_copy(update={"onednn": True}))
        assert self.of([with_onednn]).previous_plan == plan
        assert self.of([made("b", plan=TrainingPlan(onednn=True))]).previous_plan is None
