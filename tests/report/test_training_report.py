"""OptimizedTrainer's report says what the record says."""

import math

import pytest
from drawn import texts
from perf_records import training_record

from tfx_perf.core import formatting, metrics
from tfx_perf.core.statistics import Interval
from tfx_perf.gate import verdict
from tfx_perf.report import training as training_report
from tfx_perf.training import advice, scaling
from tfx_perf.training.measuring.accounts import CommunicationAccount, ReplicaAccount
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning.choice import TrialRecord

CHOSEN = TrainingPlan(steps_per_execution=50)
TRIALS = (
    TrialRecord(
        plan=PLAIN_FIT,
        status="reference",
        reason="what plans must beat",
        loss=0.69315,
        compile_time_seconds=1.5,
        step_time=Interval(value=0.003, low=0.0029, high=0.0031),
    ),
    TrialRecord(
        plan=CHOSEN,
        status="chosen",
        reason="4.00 times the speed of Keras fit",
        loss=0.69316,
        step_time=Interval(value=0.00075, low=0.0007, high=0.0008),
        speedup=Interval(value=4.0, low=3.8, high=4.2),
    ),
    TrialRecord(
        plan=TrainingPlan(steps_per_execution=50, xla=True), status="failed", reason="no kernel <X>"
    ),
)


def record(**fields):
    usual = {
        "plan": CHOSEN,
        "plan_reason": "4.00 times the speed of Keras fit",
        "trials": TRIALS,
        "environment": {"device_name": "a device"},
        "step_time": Interval(value=0.0008, low=0.0007, high=0.0009),
        "step_time_p90_seconds": 0.001,
        "step_times": ((50, 0.1), (100, 0.0008)),
        "global_batch_size": 40,
        "parameter_count": 211,
        "time_to_first_step_seconds": 9.0,
        "compile_time_seconds": 1.0,
        "trial_time_seconds": 8.0,
        "peak_memory_bytes": 2**30,
        "peak_rss_bytes": 2**30,
        "training_memory_bytes": None,
        "flops_per_step": 43360,
        "peak_flops_per_second": 1e12,
        "peak_source": "measured: here",
        "losses": {"loss": (0.7, 0.5), "val_loss": (0.6,)},
    }
    return training_record(0.0008, **{**usual, **fields})


def test_only_turns_tell_what_a_plan_saves():
    by_turns = record(train_step_count=10_000)
    assert "this should save 21.0 s a run" in training_report.report_on(by_turns).verdict
    reference, chosen, failed = TRIALS
    by_check = (reference, chosen.model_copy(update={"speedup": None}), failed)
    verdict = training_report.report_on(record(train_step_count=10_000, trials=by_check)).verdict
    assert "The trials took 8.00 s." in verdict


NARROW = "mixed_bfloat16"


def timed(plan, seconds, *, status="slower", reason="not surely faster"):
    step_time = Interval(value=seconds, low=seconds, high=seconds)
    return TrialRecord(plan=plan, status=status, reason=reason, step_time=step_time)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([timed(CHOSEN.model_copy(update={"precision": NARROW}), 0.0006)], "is 1.25 times as fast"),
        ([timed(TrainingPlan(precision=NARROW), 0.002)], "is 1.50 times as fast"),
        (
            [
                TrialRecord(
                    plan=TrainingPlan(steps_per_execution=9, precision=NARROW),
                    status="untried",
                    reason="not worth it",
                ),
                timed(
                    CHOSEN.model_copy(update={"precision": NARROW}),
                    0.0006,
                    status="different",
                    reason="loss differs by 3.0%",
                ),
            ],
            "was not chosen (loss differs by 3.0%)",
        ),
    ],
)
def test_the_first_lines_say_that_the_models_own_precision_stays(others, said):
    environment = {"device_name": "a device", "precision": "float32"}
    found = record(trials=(*TRIALS, *others), environment=environment)
    assert f"float32 stays: {NARROW} {said}." in training_report.report_on(found).verdict
    assert "stays" not in training_report.report_on(record()).verdict
    narrow = found.model_copy(update={"plan": TrainingPlan(precision=NARROW)})
    assert advice.reasons_for_own(narrow) == []


ALONE = {"device_name": "a device", "strategy": "one_device"}
ON_TWO = {**ALONE, "strategy": "MultiWorkerMirroredStrategy", "replica_count": "2"}
WAITING = CommunicationAccount(
    step_time_seconds=0.0008,
    reduced_bytes_per_step=844,
    replicas=tuple(
        ReplicaAccount(worker=worker, wait_time_seconds=seconds)
        for worker, seconds in enumerate((0.0004, 0.0005))
    ),
)


def of_two(**fields):
    return record(replica_count=2, worker_count=2, environment=ON_TWO, **fields)


def test_the_first_lines_give_the_gain_of_several_replicas():
    found = of_two(communication=WAITING)
    assert training_report.report_on(found).verdict.endswith(
        "The replicas wait for each other in 56% of a step, and so are at most 0.88 times as fast "
        "as one replica alone: one replica is faster on this machine. Why: the workers share the "
        "processor of one machine. Remedy: train in one process on one device, without "
        "tfx-perf launch or distribution.workers, e.g. with distribution.strategy: one_device."
    )
    before = [
        ("/runs/4", found),
        ("/runs/3", record(environment={**ALONE, "precision": "mixed_float16"})),
        ("/runs/2", record(environment=ALONE, mean_step_time_seconds=0.0004)),
        ("/runs/1", record(environment=ALONE)),
    ]
    alone = scaling.with_one_replica(found, before).one_replica
    assert (alone.source, alone.examples_per_second) == ("/runs/2", pytest.approx(100_000))
    of_one = before[2][1]
    assert scaling.with_one_replica(of_one, before) is of_one
    again = scaling.with_one_replica(found, [("/runs/5", of_two(one_replica=alone))])
    assert again.one_replica == alone
    verdict = training_report.report_on(of_two(one_replica=alone)).verdict
    words = "The replicas train 0.50 times as fast as the last run on one replica (/runs/2): one"
    assert words in verdict
    faster = of_two(one_replica=alone, mean_step_time_seconds=0.0002)
    (said,) = scaling.sentences(faster)
    assert said.endswith("as fast as the last run on one replica (/runs/2).")
    measured = of_two(one_replica=alone, communication=WAITING)  # which no bound is needed beside
    assert "at most" not in scaling.sentences(measured)[0]


def test_where_one_replica_trains_faster_the_first_lines_say_why_and_what_to_do():
    compiled = TrainingPlan(steps_per_execution=50, xla_loop=True)
    before = [("/runs/2", record(environment=ALONE, plan=compiled, mean_step_time_seconds=0.0004))]
    short_epochs = WAITING.model_copy(update={"epoch_start_seconds": 0.0008})
    found = of_two(communication=short_epochs, mean_step_time_seconds=0.0016)
    found = scaling.with_one_replica(found, before)
    assert found.figures()["replica_speedup_ratio"] == pytest.approx(0.25)
    report = training_report.report_on(found)
    assert report.tone == "neutral"
    assert scaling.sentences(found) == [
        "The replicas train 4.00 times slower than the last run on one replica (/runs/2): one "
        "replica is faster on this machine.",
        "Why: the beginnings of epochs take 50% of the time: longer epochs have fewer; they wait "
        "for each other in 56% of a step; the workers share the processor of one machine.",
        "Remedy: train in one process on one device, without tfx-perf launch or "
        "distribution.workers, e.g. with distribution.strategy: one_device.",
    ]
    assert "<p>Remedy: train in one process" in report.render()
    *_, apart = scaling.sentences(found.model_copy(update={"host_count": 2}))
    assert apart.endswith("give each replica a larger batch, or a faster network.")


def on_cpus(count, **fields):
    found = of_two(**fields)
    return found.model_copy(update={"environment": {**ON_TWO, "cpu_count": str(count)}})


def test_workers_with_cores_of_their_own_are_held_against_one_process_with_all_of_them():
    before = [("/runs/1", record(environment={**ALONE, "cpu_count": "8"}))]
    found = scaling.with_one_replica(on_cpus(4, mean_step_time_seconds=0.0006), before)
    assert found.figures()["replica_speedup_ratio"] == pytest.approx(4 / 3)
    elsewhere = scaling.with_one_replica(on_cpus(5), before)  # two have more than the machine
    assert elsewhere.one_replica is None


def test_epochs_that_begin_are_no_part_of_a_step():
    short_epochs = WAITING.model_copy(update={"epoch_start_seconds": 0.0056})
    for account in (WAITING, short_epochs):  # so that more workers would take the same
        assert scaling.step_time_seconds(account, 2) == pytest.approx(0.0008)
    assert "at most 0.98 times" in scaling.sentences(of_two(communication=short_epochs))[0]
    html = training_report.report_on(of_two(communication=short_epochs)).render()
    assert "Of a step within an epoch, 800 µs on average." in html
    assert "The beginnings of epochs take 5.60 ms more, spread over all steps" in html
    html = training_report.report_on(of_two(communication=WAITING)).render()
    assert "beginnings of epochs" not in html


def test_waiting_workers_get_a_remedy():
    said = [
        dict(
            (each.code, each.message)
            for each in advice.advise(of_two(communication=WAITING, host_count=count), None)
        )["communication_bound"]
        for count in (1, 2)
    ]
    assert said[0].endswith("share its cores: leave distribution.workers out.")
    assert said[1].endswith("and so does a faster network.")


def test_trials_that_went_before_count():
    before, found = record(), record().after_trials(30.0)
    for name in ("trial_time_seconds", "fit_time_seconds", "time_to_first_step_seconds"):
        assert getattr(found, name) == getattr(before, name) + 30.0
    assert record(time_to_first_step_seconds=None).after_trials(1.0).fit_time_seconds == 11.0


def test_every_figure_is_there():
    html = training_report.report_on(record(notes=("FLOPs not counted: why",))).render()
    missing = html.partition("Without a value: ")[2].partition("</")[0]
    for key, value in record().figures().items():
        description = metrics.CATALOGUE[key].description.replace("'", "&#39;")
        assert (formatting.label(key) in missing) if value is None else (description in html)
    assert "measured: here" in html
    assert "FLOPs not counted: why" in html


def loss_section(**losses):
    html = training_report.report_on(record(losses=losses)).render()
    return html[html.index("<h2>Loss</h2>") : html.index("<h2>Step time of the plans</h2>")]


def test_losses_are_drawn_from_the_second_epoch_on():
    section = loss_section(loss=(0.7, 0.5), val_loss=(0.8, 0.6), tips_loss=(0.2, 0.1))
    assert section.count("<svg") == 1
    assert {"training", "validation", "epoch", "loss"} <= set(texts(section))
    assert "at even distances" not in section
    assert section.index("Other losses") < section.index("tips_loss") < section.index(">0.1<")
    assert "tips_loss" not in texts(section)


def test_the_losses_of_one_epoch_are_a_table():
    section = loss_section(loss=(0.71234,), val_loss=(0.8,))
    assert "<svg" not in section
    for text in ("training", "0.7123", "validation", "0.8", "only epoch"):
        assert text in section
    assert "<h2>Loss" not in training_report.report_on(record(losses={})).render()


def test_the_page_says_when_validation_came_less_often_and_which_loss_is_no_number():
    section = loss_section(loss=(0.7, 0.5, math.nan, math.nan), val_loss=(0.8, 0.7))
    assert "The validation loss is known 2 times in 4 epochs" in section
    assert "Value 3 of the training loss is nan." in section


def test_figures_are_derived_from_measurements():
    figures = record(jit_compile=True).figures()
    assert figures["examples_per_second"] == pytest.approx(40 / 0.0008)
    assert figures["achieved_flops_per_second"] == pytest.approx(43360 / 0.0008)
    assert figures["mfu_ratio"] == pytest.approx(43360 / 0.0008 / 1e12)
    assert figures["compile_share_ratio"] == 0.1
    assert figures["macs_per_step"] == 43360 / 2
    assert record(executed_flops_per_step=86720).figures()["hfu_ratio"] == pytest.approx(
        2 * figures["mfu_ratio"]
    )
    used = record(energy_joules=400.0).figures()
    assert used["energy_per_example_joules"] == pytest.approx(400 / (100 * 40))
    assert figures["energy_per_example_joules"] is None
    assert figures["peak_memory_share_ratio"] is None
    assert record(device_memory_bytes=2**32).figures()["peak_memory_share_ratio"] == 0.25
    assert figures["plan_speedup_ratio"] == 4.0
    assert figures["train_loss"] == 0.5
    assert figures["validation_loss"] == 0.6
    assert figures["xla_enabled"] == 0  # what Keras would have done is of no account
    assert record(jit_compile=True, plan=PLAIN_FIT).figures()["xla_enabled"] == 1
    assert set(figures) == {
        key for key, metric in metrics.CATALOGUE.items() if metric.component == "OptimizedTrainer"
    }


def changed_by(**fields):
    before = record(executed_flops_per_step=1000).figures()
    after = record(executed_flops_per_step=1000, **fields).figures()
    return {key for key in before if before[key] != after[key]}


def test_figures_made_of_the_mean_step_time_are_known_to_be():
    """So a new one needs a line in the set, or the gate does not see how uncertain it is."""
    made = changed_by(mean_step_time_seconds=0.5)
    assert made | {"cost_per_million_examples"} == metrics.OF_MEAN_STEP_TIME


def test_figures_of_the_steps_are_known_to_need_enough_of_them():
    made = changed_by(
        mean_step_time_seconds=0.5,
        step_time=Interval(value=0.5, low=0.4, high=0.6),
        step_time_p90_seconds=0.6,
        step_time_p99_seconds=0.7,
        step_cpu_time_seconds=0.8,
    )
    neither = metrics.Direction.NONE
    better = {key for key in made if metrics.CATALOGUE[key].direction is not neither}
    assert better | {"cost_per_million_examples"} == verdict.PER_STEP


@pytest.mark.parametrize(
    ("is_planned", "within"), [(True, "the 3 planned runs"), (False, "the 3 expected runs")]
)
def test_unplanned_runs_are_those_so_far(is_planned, within):
    made = training_report.report_on(record(expected_runs=3), runs_are_planned=is_planned)
    assert f"pays only after 39 runs, not within {within}." in made.verdict


def test_where_no_run_on_one_replica_is_known_the_first_line_says_what_they_bring_at_most():
    quick = WAITING.model_copy(
        update={"replicas": tuple(ReplicaAccount(worker=i, wait_time_seconds=0) for i in (0, 1))}
    )
    (bound,) = scaling.sentences(of_two(communication=quick))
    assert bound.endswith("at most 2.00 times as fast as one replica alone.")
    on_devices = of_two(communication=WAITING).model_copy(update={"worker_count": 1})
    _, to_do = scaling.sentences(on_devices)  # no cause is known: no workers share a processor
    assert to_do.endswith("e.g. with distribution.strategy: one_device.")
