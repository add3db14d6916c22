"""Choices that were made elsewhere, and trials that are watched and cut short."""

import re
import time

import model_cases
import numeric_models
import pytest
from model_cases import captured
from model_cases import settings_that_try as settings_with

from tfx_perf.config import MonitoringSettings
from tfx_perf.memory import batches
from tfx_perf.training.loop import turns
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.replicas.sync import Sync
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning import choosing, equivalence, plan_key, plan_tuner
from tfx_perf.training.tuning.choice import TRIALS_OFF, PlanChoice, TrialRecord, plain
from tfx_perf.training.tuning.contest import Contender, Contest
from tfx_perf.training.tuning.cost_model import Budget
from tfx_perf.training.tuning.earlier import KnownPlan
from tfx_perf.training.tuning.equivalence import EquivalenceCheck
from tfx_perf.training.tuning.plan_key import fit_key
from tfx_perf.training.tuning.plan_tuner import PlanTuner

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops")]

FIVE = TrainingPlan(steps_per_execution=5)
TEN = TrainingPlan(steps_per_execution=10, fused_update=True)
XLA = TEN.model_copy(update={"xla": True})
EVEN = [1.0] * 5


@pytest.fixture
def known_times(same_plans, monkeypatch):
    """Has the short trainings of trials report the times of an idle machine.

    These times decide which plans are worth trying.
    """
    train = EquivalenceCheck._train

    def timed(self, plan, **given):
        found = train(self, plan, **given)
        found.contender.step_seconds = 1e-3 if plan.is_plain_fit else 2e-4
        found.contender.compile_seconds = 0.3
        return found

    monkeypatch.setattr(EquivalenceCheck, "_train", timed)


def tried(call, *, watch=None, known=None, **settings):
    given = {"known": known or KnownPlan(), **({"watch": watch} if watch else {})}
    return choosing.by_trials(call, FitLoop(call), settings=settings_with(**settings), **given)


def trials_of(call, budget_seconds=60.0, loop=None):
    budget = Budget(budget_seconds, sync=Sync())
    loop, settings = loop or FitLoop(call), settings_with()
    return PlanTuner(call, loop, settings=settings, budget=budget, known=KnownPlan())


def contender(plan, step_seconds, blocks=()):
    return Contender(plan, 0.0, compile_seconds=0.0, step_seconds=step_seconds, blocks=list(blocks))


def small(keras, *, model=None, batch_size=8, steps=40):
    data = model_cases.regression().unbatch().batch(batch_size).repeat()
    return captured(model or model_cases.dense(keras), data, steps_per_epoch=steps)


def choice_for(call):
    return PlanChoice(
        plan=FIVE,
        plan_reason="for the test",
        trial_time_seconds=30.0,
        fit=fit_key(call, FitLoop(call)),
        key={"code": "1"},
        is_settled=True,
    )


def test_a_given_plan_trains_its_own_fit_without_trials(keras):
    call = small(keras)
    choice = choice_for(call)
    session = TrainingSession(settings_with(), choice=choice)
    session.fit(call)
    record = session.record
    assert record.train_step_count == 80
    assert PlanChoice(**{name: getattr(record, name) for name in PlanChoice.model_fields}) == choice
    # Time before fit counts, and the train function was compiled here.
    assert 30.0 < record.time_to_first_step_seconds < record.fit_time_seconds
    assert 0 < record.compile_time_seconds < record.fit_time_seconds - 30.0


def test_another_fit_than_the_given_plans_gets_its_own_choice(keras):
    def choose(call, loop):
        assert batches.declared_batch_size(call) == 16
        return plain("for the test")

    call = small(keras)
    session = TrainingSession(settings_with(), choice=choice_for(call), choose=choose)
    session.fit(call)
    assert session.record.plan == FIVE
    session.fit(small(keras, model=call.model, batch_size=16, steps=60))
    assert session.record.plan_reason == "for the test"
    assert session.record.trial_time_seconds == 0.0  # trials are counted once
    session.fit(small(keras, model=call.model, steps=70))
    assert session.record.plan == FIVE


def test_each_of_several_fits_reuses_its_plan_in_the_next_run(keras):
    tried = []

    def choose(call, loop):
        batch_size = batches.declared_batch_size(call)
        tried.append(batch_size)
        plan, is_settled = TrainingPlan(steps_per_execution=batch_size), batch_size < 16
        return choice_for(call).model_copy(update={"plan": plan, "is_settled": is_settled})

    def known_after(session):
        model = model_cases.dense(keras)
        for batch_size, steps in ((4, 20), (8, 40), (16, 20)):
            session.fit(small(keras, model=model, batch_size=batch_size, steps=steps))
        return session.record.for_another_run("before", expected_runs=1)

    known = known_after(TrainingSession(settings_with(), choose=choose))
    found = [(each.plan.steps_per_execution, each.reused_from) for each in known.of_all_fits]
    assert found == [(8, "before"), (4, "before")]  # the longest training first
    assert tried == [4, 8, 16]
    again = known_after(TrainingSession(settings_with(), choice=known, choose=choose))
    assert again.of_all_fits == known.of_all_fits
    assert tried == [4, 8, 16, 16]  # their trials were not settled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "is_used", "is_settled"),
    [(0.95, True, True), (0.8, True, False), (0.4, False, False)],
)
def test_a_grown_model_trains_with_its_plan_until_new_trials(keras, share, is_used, is_settled):
    call = small(keras)
    choice = choice_for(call)
    count = int(choice.fit["parameter_count"])
    before = {**choice.fit, "parameter_count": str(int(share * count))}
    choice = choice.model_copy(update={"fit": before, "is_settled": True})
    session = TrainingSession(
        settings_with(), choice=choice, choose=lambda *_: plain("chosen anew")
    )
    session.fit(call)
    assert (session.record.plan == FIVE) == is_used
    assert (session.record.plan_reason == "chosen anew") != is_used
    assert session.record.is_settled == is_settled


def test_a_given_plan_yields_to_obstacles(keras):
    call = small(keras, steps=2)
    choice = choice_for(call)
    call.model.run_eagerly = True
    session = TrainingSession(settings_with(), choice=choice)
    session.fit(call)
    assert session.record.plan_reason == "the model runs eagerly"
    assert session.record.trial_time_seconds == 30.0


def test_workers_use_a_known_plan_or_keras_fit_whatever_goes_wrong(keras):
    class Odd(keras.callbacks.Callback):
        @property
        def save_freq(self):
            raise RuntimeError("not set yet")

    call = small(keras)
    why = "nobody would start them again; do so"
    found = choosing.for_workers(call, FitLoop(call), settings=settings_with(), why=why)
    plan = found.plan
    assert found.plan_reason == f"1 workers train together, without trials: {why}"
    assert (plan.steps_per_execution, plan.xla, plan.xla_loop) == (10, False, False)
    off = choosing.for_workers(call, FitLoop(call), settings=settings_with(tuning_seconds=0))
    assert (off.plan, off.plan_reason) == (PLAIN_FIT, TRIALS_OFF)
    call.arguments["callbacks"] = [Odd()]
    odd = choosing.for_workers(call, FitLoop(call), settings=settings_with(), why=why)
    assert odd.plan == PLAIN_FIT
    assert odd.plan_reason.endswith("without trials: RuntimeError: not set yet")


@pytest.mark.parametrize(
    ("kind", "differs"),
    [("lstm", {"element_spec", "parameter_count", "optimizer"}), ("dense", set())],
)
def test_fit_key(keras, kind, differs):
    first = small(keras)
    model, data = model_cases.dense(keras), model_cases.regression()
    other = captured(*(numeric_models.lstm(keras) if kind == "lstm" else (model, data)))
    one, two = (fit_key(call, FitLoop(call)) for call in (first, other))
    assert {part for part in one if one[part] != two[part]} == differs


def test_plan_key():
    parts = {"code": "a", "hyperparameters": "b", "data": "c", "input_candidate": "d"}
    parts["worker_count"] = 1
    key = plan_key.plan_key(settings_with(), **parts)
    irrelevant = settings_with(seed=1, checkpoint_every_steps=5)
    assert plan_key.plan_key(irrelevant, **parts) == key
    monitoring = MonitoringSettings(metrics_port=9090)
    watched = settings_with().model_copy(update={"monitoring": monitoring})
    assert plan_key.plan_key(watched, **parts) == key
    # With a larger budget, plans that took too long may be tried.
    for relevant in (
        settings_with(xla=True),
        settings_with(loss_tolerance=0.5),
        settings_with(tuning_seconds=1),
    ):
        assert plan_key.plan_key(relevant, **parts) != key
    for part in parts:
        assert plan_key.plan_key(settings_with(), **{**parts, part: "x"}) != key


@pytest.mark.usefixtures("same_plans")
def test_trials_announce_each_run_and_skip_known_plans(keras, monkeypatch):
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.01)
    call, watched = small(keras), []
    xla, xla_loop = (
        TrialRecord(plan=plan, status="failed", reason="it crashed")
        for plan in (
            TrainingPlan(steps_per_execution=50, xla=True, fused_update=True),
            TrainingPlan(steps_per_execution=50, xla_loop=True),
        )
    )
    known = KnownPlan(trials=(xla, xla_loop))
    found = tried(call, watch=watched.append, known=known, xla=True, tuning_seconds=120)
    ours = [{PLAIN_FIT}, {TEN}]  # other speedups may have their own plans
    running = [progress.running for progress in watched if {*progress.running} in ours]
    assert running[:3] == [(PLAIN_FIT,), (TEN,), (PLAIN_FIT,)]  # two checks, then turns
    assert running.count((PLAIN_FIT,)) > 3
    assert running.count((TEN,)) > 3
    assert not any(plan.uses_xla for progress in watched for plan in progress.running)
    assert all(progress.finished == (xla, xla_loop) for progress in watched)
    assert {PLAIN_FIT, TEN, xla.plan, xla_loop.plan} <= {trial.plan for trial in found.trials}
    assert found.is_settled
    assert not found.budget_lack
    assert found.fit == fit_key(call, FitLoop(call))


@pytest.mark.parametrize(
    "previous", [None, TrainingPlan(steps_per_execution=50, fused_update=True)]
)
def test_the_previous_plan_is_tried_whatever_its_cost(keras, previous):
    known = KnownPlan(previous_plan=previous)
    found = tried(small(keras, steps=1), known=known, expected_runs=1)
    plans = {trial.plan for trial in found.trials if trial.status not in ("untried", "reference")}
    assert {plan.fused_update for plan in plans} == ({True} if previous else set())


@pytest.mark.parametrize("budget_seconds", [30, 70, 110, 170])
def test_trials_stay_within_their_budget(keras, monkeypatch, budget_seconds):
    train, real, late = EquivalenceCheck._train, time.perf_counter, []
    monkeypatch.setattr(time, "perf_counter", lambda: real() + sum(late))

    def take_long(self, plan, **given):
        late.append(20.0)
        return train(self, plan, **given)

    monkeypatch.setattr(EquivalenceCheck, "_train", take_long)
    call = small(keras)
    began = real()
    found = tried(call, xla=True, tuning_seconds=budget_seconds)
    busy_seconds = real() - began  # real time, since the machine may be busy with other work
    assert sum(late) <= budget_seconds
    assert found.trial_time_seconds <= budget_seconds + busy_seconds
    if budget_seconds < 60:  # the reference would need two more trainings
        assert sum(late) == 20
        assert not found.is_settled
        more = re.search(r"were left, .*training\.tuning_seconds by (\d+)", found.plan_reason)
        assert budget_seconds + int(more[1]) >= 80  # a training takes 20 s, and there are some
    if budget_seconds > 160:
        assert any(each.status in ("chosen", "slower") for each in found.trials)


def test_input_wait_is_the_difference_that_noise_does_not_explain():
    assert plan_tuner.input_wait([1.0, 1.1, 1.2], [0.5, 0.55, 0.6]) == pytest.approx(0.5)
    assert plan_tuner.input_wait([1.0, 1.1, 1.2], [0.7, 0.9, 1.05]) == 0.0
    assert plan_tuner.input_wait([1.0, 1.1, 1.2], [1.3, 1.4, 1.5]) == 0.0


def test_trials_without_enough_time_are_not_settled(keras):
    found = tried(small(keras), tuning_seconds=0.05)
    assert found.plan.is_plain_fit
    assert not found.is_settled
    assert found.budget_lack in found.plan_reason
    assert found.plan_reason.startswith("trials ended before the first check: ")
    assert re.search(r"increase training\.tuning_seconds by [1-9]", found.plan_reason)


@pytest.mark.usefixtures("same_plans")
def test_the_input_wait_is_known_even_if_time_runs_out(keras, monkeypatch):
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.01)
    fastest, over = Contest.fastest, []

    def end_time(self, *_):
        self._budget.set_aside(600.0)
        over.append(True)
        return True

    def late(self):  # no plan stands out before the time is over, and then one does
        return fastest(self) if over else None

    monkeypatch.setattr(PlanTuner, "_more_timing_may_pay", end_time)
    monkeypatch.setattr(Contest, "fastest", late)
    found = tried(small(keras), tuning_seconds=120)
    assert not found.plan.is_plain_fit
    assert found.is_settled
    assert found.input_wait_ratio is not None


@pytest.mark.usefixtures("same_plans")
def test_a_plan_that_takes_too_long_to_compile_is_named(keras, monkeypatch):
    monkeypatch.setattr(equivalence, "_STEPS", 40)
    real, late, delays = time.perf_counter, [], []
    monkeypatch.setattr(time, "perf_counter", lambda: real() + sum(late))

    class Slow(keras.layers.Layer):
        def call(self, inputs):
            late.extend(delays)  # called when the plan is traced
            return inputs

    def watch(progress):
        delays[:] = [150.0] if progress.running == (TEN,) else []

    model = keras.Sequential([keras.layers.Input((4,)), Slow(), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    call = small(keras, model=model)
    # A check may take a quarter of the remaining time.
    found = tried(call, watch=watch, tuning_seconds=500)
    record = next(trial for trial in found.trials if trial.plan == TEN)
    assert record.status == "stopped"
    seconds = record.compile_time_seconds
    assert record.reason == f"compiling it ({seconds:.0f} s) took too long for the budget"
    assert seconds >= 150
    assert found.is_settled  # another attempt would end the same


@pytest.mark.parametrize(
    ("steps", "gain", "spent_seconds", "goes_on"),
    [(100_000, 0.1, 10.0, True), (1000, 0.1, 10.0, False), (100_000, 0.01, 10.0, False)],
)
def test_more_blocks_are_measured_if_they_may_pay(keras, steps, gain, spent_seconds, goes_on):
    call = captured(
        model_cases.dense(keras), model_cases.regression().repeat(), steps_per_epoch=steps, epochs=1
    )
    faster = contender(FIVE, 0.02 * (1 - gain), [0.02 * (1 - gain)])
    contest = Contest(contender(PLAIN_FIT, 0.02, [0.02]), [faster], margin=0.02)
    assert trials_of(call)._more_timing_may_pay(contest, spent_seconds) is goes_on


def test_all_plans_have_as_many_blocks_wherever_turns_are_cut_short(keras, monkeypatch):
    call = small(keras)
    loop = FitLoop(call)
    monkeypatch.setattr(loop, "turn", lambda plan, iterator=None: turns.Turn(print, 1))
    monkeypatch.setattr(loop, "iterator_over", lambda data: None)
    seconds = {PLAIN_FIT: 1.0, TEN: 0.5, XLA: 0.4}

    def broken_off_after(count):
        own = trials_of(call, 1e6, loop)
        contenders = [contender(plan, each) for plan, each in seconds.items()]

        def take_turns(schedule, data):
            given = iter([0.01, *[*seconds.values()] * 100])  # the first sets the length of calls
            next(schedule)
            for _ in range(count):
                schedule.send(next(given))

        monkeypatch.setattr(loop, "take_turns", take_turns)
        contest = Contest(contenders[0], contenders[1:], margin=0.02)
        monkeypatch.setattr(PlanTuner, "_run_checks", lambda self, start: (contest, None))
        own._run_trials(None)
        blocks = {len(each.blocks) for each in contest.contenders}
        assert blocks == {min(5, max(0, count - 1) // 3)}
        return own._judge(contest)

    for count in range(20):
        choice = broken_off_after(count)
        assert not choice.is_settled
        assert choice.plan == (XLA if count > 9 else TEN)  # three rounds show so large a gain
        assert choice.plan == XLA or "ended while plans were timed" in choice.budget_lack


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("plain", "ten", "xla", "chosen"),
    [
        ([], [], [], TEN),  # by the check: there was no time for turns
        (EVEN[:2], [0.9, 0.5], [0.1, 0.1], TEN),  # nor for enough turns
        (EVEN[:2], [1.1, 1.2], [0.1, 0.1], PLAIN_FIT),
        (EVEN, [0.5] * 5, [0.1, 0.1, 0.1, 2.0, 0.1], TEN),  # the fastest is not certain to be
        (EVEN, [0.5] * 5, [0.4, 0.6, 0.4, 0.6, 0.4], TEN),
        (EVEN, [0.5] * 5, [0.4] * 5, XLA),
        (EVEN, [0.9, 1.1, 0.9, 1.1, 0.9], [0.8] * 5, XLA),
        (EVEN, [0.9, 1.1, 0.9, 1.1, 0.9], [0.9, 1.1, 0.9, 1.1, 0.9], PLAIN_FIT),
    ],
)
def test_other_plans_must_beat_the_plan_that_needs_no_trial(keras, plain, ten, xla, chosen):
    trials = trials_of(small(keras))
    trials._decides_by_turns = True
    others = [contender(TEN, 0.9, ten), contender(XLA, 0.5, xla)]
    margin = settings_with().training.margin
    contest = Contest(contender(PLAIN_FIT, 1.0, plain), others, margin=margin)
    assert trials._judge(contest).plan == chosen


@pytest.mark.usefixtures("known_times")
def test_trials_that_cost_more_than_they_save_are_skipped(keras):
    call = small(keras)
    found = tried(call, xla=True, expected_runs=1)
    assert found.plan.is_plain_fit
    assert {trial.status for trial in found.trials} == {"reference", "untried"}
    assert "too short to try other plans: one would cost about" in found.plan_reason
    assert found.is_settled
    assert found.enough_runs > 1
    again = tried(call, xla=True, expected_runs=2 * found.enough_runs)
    assert any(trial.status in {"chosen", "slower"} for trial in again.trials)


@pytest.mark.parametrize(("seconds", "wins"), [(0.9, True), (1.3, True), (1.6, False)])
def test_noise_in_a_check_does_not_rule_out_a_plan_with_less_work(seconds, wins):
    plain, longer = contender(PLAIN_FIT, 1.0), contender(TEN, seconds)
    found = Contest(plain, [longer], margin=0.02).winner_without_turns()
    assert (found is longer) is wins
    if seconds > 1.0 and wins:
        assert "with less work" in longer.record(plain, longer).reason


def test_a_plan_that_seems_faster_than_the_chosen_one_may_not_be():
    plain, ten, five = (
        contender(plan, seconds, [seconds] * 3)
        for plan, seconds in ((PLAIN_FIT, 2e-3), (TEN, 1.6e-3), (FIVE, 1.5e-3))
    )
    assert five.record(plain, ten).reason.endswith(f", but not surely faster than {TEN}")
    assert "surely" not in ten.record(plain, ten).reason + plain.record(ten, ten).reason


def test_no_factor_is_given_from_a_check_alone():
    plain = contender(PLAIN_FIT, 2e-3)
    for seconds, how in ((1e-3, "faster"), (3e-3, "not faster")):
        said = contender(TEN, seconds).record(plain, None).reason
        shown = f"{1e3 * seconds:.2f} ms a step, not 2.00 ms a step"
        where = "in the few steps of its check, on batches in memory"
        assert said == f"{how} than Keras fit {where}: {shown}"


@pytest.mark.usefixtures("known_times")
def test_the_check_decides_where_turns_cost_more_than_they_save(keras):
    call = small(keras, steps=2000)
    found = tried(call, xla=True, expected_runs=3)
    reference, chosen, *untried = found.trials
    # Plans that may be slower are not chosen without turns.
    assert {(each.status, each.plan.uses_xla) for each in untried} == {("untried", True)}
    assert found.plan == chosen.plan == TEN
    assert found.plan_reason.startswith("faster than Keras fit in the few steps of its check")
    assert chosen.speedup is None and found.input_wait_ratio is None  # without turns, untimed
    assert chosen.step_time.value < reference.step_time.value  # KerasFallback compares with it
    assert not found.is_final(expected_runs=found.enough_runs)
    again = tried(call, xla=True, expected_runs=2 * found.enough_runs)
    timed = {each.status: each.speedup for each in again.trials if each.speedup is not None}
    assert timed
    assert again.plan.is_plain_fit or timed["chosen"].low > 1
    assert again.input_wait_ratio is not None


def test_a_fit_without_epochs_has_no_trials(keras):
    call = small(keras)
    call.arguments["initial_epoch"] = call.arguments["epochs"]
    assert tried(call).plan_reason == "there are no epochs to train"


def test_one_slow_look_does_not_rule_out_a_plan(keras, monkeypatch):
    """The machine may have been busy with something else at that time."""
    train, looks = EquivalenceCheck._train, []

    def once_slow(self, plan, **arguments):
        found = train(self, plan, **arguments)
        if not plan.is_plain_fit:
            looks.append(plan)
            if len(looks) == 1:
                found.contender.step_seconds *= 1000
        return found

    monkeypatch.setattr(EquivalenceCheck, "_train", once_slow)
    found = tried(small(keras, steps=2000), expected_runs=3)
    assert len(looks) == 2
    assert "in the check" not in found.trials[-1].reason


def test_where_no_check_can_pay_not_even_keras_own_step_is_timed(keras, monkeypatch):
    call = small(keras, steps=15)  # two epochs
    monkeypatch.setattr(FitLoop, "prepare", None)  # it would trace
    for settings in (settings_with(expected_runs=1), settings_with(expected_runs=2)):
        found = choosing.choose_and_restore(call, FitLoop(call), settings=settings)
        assert found.plan.is_plain_fit and not found.trials and not found.trials_failed
        assert "too short for trials: it has" in found.plan_reason
        assert found.enough_runs == 3
        assert not found.is_settled  # the next run may have another number of steps
    assert "60 steps in all planned runs" in found.plan_reason
    assert tried(call, expected_runs=3).trials_failed  # now the step was timed


def test_a_few_slow_steps_show_that_trials_cost_more_than_they_save(keras, monkeypatch):
    monkeypatch.setattr(equivalence, "_LOOK_SECONDS", -1.0)
    trained, train = [], EquivalenceCheck._train

    def noted(self, plan, **given):
        found = train(self, plan, **given)
        trained.append(found.step_count)
        return found

    monkeypatch.setattr(EquivalenceCheck, "_train", noted)
    found = tried(small(keras, steps=50), expected_runs=1)
    assert "too short to try other plans: one would cost about" in found.plan_reason
    assert trained == [3]
    trained.clear()
    monkeypatch.setattr(equivalence, "_HOPELESS", 1e9)
    tried(small(keras, steps=50))
    assert trained[:3] == [3, 20, 20]  # a plan that is worth trying is compared over all steps
