"""The choice: what is dropped, what wins, and that the default wins ties.

With a training step what wins has to win on that, too.
"""

import time

import pytest
from slow_data import Training, slow, slowed

from tests import sayings
from tfx_perf.config import InputSettings
from tfx_perf.core import formatting, metrics
from tfx_perf.input import budget, candidate_check, choice, measure, search, stages, tuner
from tfx_perf.input.candidates import Columns, Default, candidate
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.record import TuningRecord
from tfx_perf.report import input as input_report

pytestmark = pytest.mark.usefixtures("short_blocks")


class Twin(Default):
    name = "twin"


class Slow(candidate.Candidate):
    name = "slow"
    description = "Waits at every batch."

    def build(self, source, *, limits):
        return slow(source.default(), 0.02)


class Fails(Slow):
    name = "fails"

    def build(self, source, *, limits):
        raise RuntimeError("no luck\nsecond line")


class TooLarge(Slow):
    name = "too_large"

    def build(self, source, *, limits):
        limits.check(2**50)


class OtherSpec(Slow):
    name = "other_spec"

    def build(self, source, *, limits):
        return source.default().map(lambda features, label: (label, features))


class TakesLong(Columns):
    """Takes two fifths of the time budget to be prepared."""

    name = "takes_long"
    waits = True

    def build(self, source, *, limits):
        if TakesLong.waits:
            time.sleep(12)
            TakesLong.waits = False
        return super().build(source, limits=limits)


class LosesExamples(Slow):
    name = "loses"

    def build(self, source, *, limits):
        return source.default().skip(1)


class ChangesValues(Slow):
    name = "changes"

    def build(self, source, *, limits):
        return source.default().map(lambda features, label: (features, label + 1))


@pytest.fixture
def brief_diagnosis(monkeypatch):
    """One round and no stages, where the diagnosis is not what is asked for."""
    monkeypatch.setattr(search, "_DIAGNOSED", 0.0)


def tune(source, *candidates, **settings):
    settings = {"tuning_seconds": 120, **settings}  # it ends by itself long before
    source = source.replace_options(batch_size=32)
    return tuner.tune(source, settings=InputSettings(**settings), candidates=candidates)


@pytest.mark.usefixtures("brief_diagnosis")
def test_faster_candidate_is_chosen(make_source, tmp_path):
    with sayings.kept() as said:
        record = tune(slowed(make_source(), 0.02), Columns())
    assert {"diagnosing the input pipeline", "examining columns"} < set(said)
    assert any(text.startswith("measuring default, columns") for text in said)
    assert record.chosen == "columns"
    chosen = record.outcome(record.chosen)
    assert (chosen.status, record.outcome("default").status) == ("chosen", "measured")
    assert chosen.ratio.low > 1 + record.margin
    assert record.example_count == record.checked_example_count == 230
    assert (record.file_count, record.compression) == (3, "GZIP")
    assert chosen.resident_bytes >= 230 * 8
    assert 0 < record.tuning_time_seconds < 120

    figures = metrics.checked(record.figures())
    with_train_step = {
        "input_training_speedup_ratio", "input_efficiency_ratio", "input_headroom_ratio",
    }  # fmt: skip
    assert {
        key for key, metric in metrics.CATALOGUE.items() if metric.component == "InputTuner"
    } == set(figures) | with_train_step
    assert figures["input_speedup_ratio"] == chosen.ratio.value
    assert figures["tuned_examples_per_second"] > figures["default_examples_per_second"]

    record.write(tmp_path / "plan.json")
    assert TuningRecord.read(tmp_path / "plan.json") == record
    page = input_report.report_on(record).render()
    assert record.reason.replace("'", "&#39;") in page
    assert "<svg" in page


@pytest.mark.usefixtures("brief_diagnosis")
def test_default_wins_ties_and_against_slower(make_source):
    record = tune(make_source(), Twin(), Slow(), margin=0.5)
    assert record.chosen == "default"
    assert record.outcome("twin").status == record.outcome("slow").status == "measured"
    assert record.outcome("slow").ratio.high < 1
    assert record.figures()["input_speedup_ratio"] == 1
    assert "default stays" in record.reason


@pytest.mark.usefixtures("brief_diagnosis")
def test_a_candidate_that_is_not_equivalent_is_dropped(make_source):
    candidates = [Fails(), OtherSpec(), LosesExamples(), ChangesValues()]
    record = tune(make_source(), *candidates)
    reasons = {outcome.name: outcome.reason for outcome in record.outcomes}
    assert record.chosen == "default"
    assert all(record.outcome(item.name).status == "dropped" for item in candidates)
    assert reasons["fails"] == "RuntimeError: no luck"
    assert "element spec" in reasons["other_spec"]
    assert "instead of 230" in reasons["loses"]
    assert "with different values" in reasons["changes"]
    assert "so the default stays. fails: RuntimeError: no luck" in record.reason
    assert "other_spec: its element spec" in record.reason
    assert "memory" not in record.reason
    assert record.remark == record.reason


@pytest.mark.usefixtures("brief_diagnosis")
def test_large_data_is_compared_by_a_prefix(make_source, monkeypatch):
    monkeypatch.setattr(candidate_check, "_REFERENCE_SHARE", 0.0)
    record = tune(make_source(), Columns(), ChangesValues(), margin=1e9)  # nothing wins
    assert record.checked_example_count == 32
    assert record.example_count is None
    assert record.outcome("columns").status != "dropped"
    assert "with different values" in record.outcome("changes").reason


@pytest.mark.usefixtures("brief_diagnosis")
def test_over_the_memory_budget_is_dropped(make_source):
    record = tune(make_source(), Columns(), memory_budget_bytes=1000)
    assert record.chosen == "default"
    assert record.outcome("columns").status == "dropped"
    columns = record.outcome("columns")
    assert "the budget is 1000 B" in columns.reason
    assert columns.needed_bytes > 1000
    assert record.memory_budget_configured
    for part in (
        "the default stays",
        "1000 B rules out columns",
        formatting.format_bytes(columns.needed_bytes),
        "raise input.memory_budget_bytes",
    ):
        assert part in record.reason
    assert record.remark == record.reason


@pytest.mark.slow
@pytest.mark.usefixtures("brief_diagnosis")
def test_a_default_that_stays_for_want_of_memory_says_so(make_source):
    record = tune(make_source(), TooLarge(), Twin(), margin=0.5, memory_budget_bytes=10 * 2**30)
    assert record.chosen == "default"
    assert record.outcome("twin").examples_per_second is not None
    assert record.reason.startswith(choice.none_is_faster(0.5).reason)
    assert "rules out too_large; the smallest, too_large, needs at least 1,024 TiB" in record.reason
    assert record.remark == record.reason
    found = record.outcomes
    assert record.model_copy(update={"outcomes": (found[0], found[2])}).remark == ""


def test_without_time_the_default_stays(make_source):
    record = tune(make_source(), Columns(), tuning_seconds=0.01)
    assert record.chosen == "default"
    assert "No candidate could be measured" in record.reason
    assert "time budget" in record.outcome("columns").reason
    assert record.reason.endswith("input.tuning_seconds (0.01): raise it.")
    assert (record.undecided_count, record.remark) == (1, record.reason)
    assert record.outcome("default").examples_per_second.value > 0


def tune_with(source, training, *candidates, expected_runs=1, **settings):
    settings = {"tuning_seconds": 120, **settings}  # it ends by itself long before
    return tuner.tune(
        source,
        settings=InputSettings(**settings),
        train=training,
        candidates=candidates or [Columns()],
        expected_runs=expected_runs,
    )


@pytest.fixture
def prepared_at_once(monkeypatch):
    """Nothing is lost where a training prepares its input, whatever the speed of the machine."""
    monkeypatch.setattr(budget.Gain, "_preparation_seconds", lambda self, diagnosis: 0.0)


@pytest.mark.usefixtures("prepared_at_once")
def test_no_search_that_costs_more_than_it_can_bring(make_source):
    source = slowed(make_source(batch_size=32), 0.005)
    few = Training(source, step_seconds=0.0, example_count=32)
    record = tune_with(source, few)
    assert record.chosen == "default"
    assert [outcome.name for outcome in record.outcomes] == ["default"]
    assert record.diagnosis.headroom_ratio is None
    assert not few.is_prepared  # all that reading takes is too little
    assert record.diagnosis.stages == ()
    assert "too little for a search of about" in record.reason
    assert "schedule.expected_runs" in record.remark
    assert record.undecided_count == 0  # the next run would decide the same


@pytest.mark.slow
@pytest.mark.usefixtures("prepared_at_once")
def test_a_search_not_worth_it_for_one_run_is_for_many(make_source):
    source = slowed(make_source(batch_size=32), 0.005)
    few = Training(source, step_seconds=0.0, example_count=32)
    assert tune_with(source, few, expected_runs=1_000_000).chosen.startswith("columns")


def brief_training(source):
    """A training that saves enough for the shortest search, and too little for a longer one."""
    return Training(source, step_seconds=0.0, example_count=150 * 32)


def test_a_certain_winner_is_chosen_without_the_train_step(make_source):
    source = slowed(make_source(batch_size=32), 0.1)
    train = brief_training(source)
    record = tune_with(source, train, Columns(), Twin())
    assert record.chosen == "columns"
    assert not train.is_prepared
    assert not record.final.on_train_step
    assert record.final.ratio.low > measure.BEYOND_DOUBT
    assert record.final.rounds == 2
    assert "default when only reading (" in record.reason
    assert record.outcome("twin").reason.startswith("not examined")
    assert record.is_conclusive
    assert record.saving_seconds is None  # which only the train step tells
    assert "none (batches are only read)" in input_report.report_on(record).render()


@pytest.mark.parametrize("waits", [True, False])
def test_a_winner_uncertain_alone_is_left_to_the_train_step(make_source, monkeypatch, waits):
    source = slowed(make_source(batch_size=32), 0.1)
    train = brief_training(source)
    if waits:  # the user's own code, which no input can change
        own = train.dataset
        train.dataset = lambda factory: slow(own(factory), 0.1)
    else:
        monkeypatch.setattr(choice, "takes_less_cpu", lambda samples, name: False)
    record = tune_with(source, train)
    assert record.chosen == "default" or record.final.on_train_step


def test_what_lost_alone_is_not_searched_for_longer_than_that_can_bring(make_source, monkeypatch):
    monkeypatch.setattr(search.Search, "least_seconds", lambda self, rates: 1e6)
    monkeypatch.setattr(choice, "takes_less_cpu", lambda samples, name: False)
    source = slowed(make_source(batch_size=32), 0.1)
    train = brief_training(source)
    record = tune_with(source, train)
    assert record.chosen == "default"
    assert not train.is_prepared
    assert record.outcome("columns").ratio.value > 1
    assert "not proven" in record.outcome("columns").reason
    assert "too little for a search of about 277 h" in record.reason


@pytest.mark.usefixtures("brief_diagnosis")
def test_what_leaves_nothing_to_gain_ends_the_search(make_source):
    source = slowed(make_source(batch_size=32), 0.02)
    train = Training(source, step_seconds=0.0, example_count=1e6)
    record = tune_with(source, train, Columns(), Twin())
    assert record.chosen == "columns"
    assert record.final.rounds == measure.MIN_ROUNDS
    assert record.outcome("twin").status == "dropped"
    assert record.outcome("twin").reason.startswith("not examined")
    assert record.outcome("columns").ratio.low > 2


@pytest.mark.slow
def test_a_first_candidate_that_loses_is_not_the_end(make_source):
    source = slowed(make_source(batch_size=32), 0.02)
    train = Training(source, step_seconds=0.0, example_count=1e6)
    record = tune_with(source, train, Twin(), Columns())
    assert record.chosen.startswith("columns")
    assert record.outcome("twin").status == "measured"
    assert record.final.rounds > measure.MIN_ROUNDS


@pytest.mark.slow
def test_a_fed_training_is_left_alone(make_source):
    # Long steps: on a machine busy with other tests, waking up late is no 3% of them.
    source = make_source(batch_size=32)
    record = tune_with(source, Training(source, step_seconds=0.6))
    assert record.chosen == "default"
    assert record.diagnosis.headroom_ratio.high < 1.03
    assert record.reason.startswith(("Compute-bound", "Training is as fast as if"))
    assert record.final is None
    assert [outcome.name for outcome in record.outcomes] == ["default"]
    assert record.figures()["default_examples_per_second"] > 0
    assert record.figures()["input_headroom_ratio"] < 1.03


@pytest.mark.slow
@pytest.mark.usefixtures("brief_diagnosis")
def test_the_winner_is_proven_on_the_train_step(make_source):
    source = slowed(make_source(batch_size=32), 0.005)
    record = tune_with(source, Training(source, step_seconds=0.0))
    assert record.chosen.startswith("columns")
    assert record.final.on_train_step
    assert record.final.ratio.low > 1 + record.margin
    assert record.final.fed_ratio.value > 0
    figures = metrics.checked(record.figures())
    assert figures["input_training_speedup_ratio"] == record.final.ratio.value
    assert "on the train step" in record.reason
    assert "Bottleneck with TFXIO&#39;s default" in input_report.report_on(record).render()


@pytest.mark.slow
@pytest.mark.usefixtures("brief_diagnosis")
def test_a_candidate_that_wins_alone_but_not_in_training_is_not_chosen(make_source):
    source = slowed(make_source(batch_size=32), 0.005)
    training = Training(source, step_seconds=0.0, wait_seconds=0.02)
    record = tune_with(source, training, margin=0.5)
    assert record.outcome("columns").ratio.low > 1 + record.margin
    assert record.chosen == "default"
    assert record.final.candidate.startswith("columns")
    assert record.final.ratio.low <= 1 + record.margin
    assert "default stays" in record.reason
    assert "not proven" in record.outcome("columns").reason


@pytest.mark.slow
@pytest.mark.usefixtures("brief_diagnosis")
def test_what_alone_can_be_prepared_in_time_is_not_given_up(make_source):
    record = tune(slowed(make_source(), 0.02), TakesLong(), tuning_seconds=30)
    assert record.chosen == "takes_long", record.reason


@pytest.mark.slow
def test_the_time_budget_is_kept(make_source):
    seconds = 10  # with ample time it takes more than twice as long
    source = make_source(batch_size=32)
    settings = InputSettings(tuning_seconds=seconds)
    record = tuner.tune(source, settings=settings, train=Training(source, step_seconds=0.0))
    assert record.tuning_time_seconds <= 1.5 * seconds


class Clock:
    """Stands still but for what is measured: each turn takes some seconds."""

    def __init__(self, monkeypatch, *, turn_seconds, rate=lambda timed: 100.0):
        self.passed_seconds = 0.0
        began = time.monotonic()

        def sample(timed, batch_size, turn_share):
            self.passed_seconds += turn_seconds
            return measure.Sample(rate(timed), 0.01)

        monkeypatch.setattr(time, "monotonic", lambda: began + self.passed_seconds)
        monkeypatch.setattr(measure, "_sample", sample)
        monkeypatch.setattr(stages, "_least_seconds", lambda dataset: turn_seconds)


@pytest.mark.one_case
@pytest.mark.parametrize("turn_seconds", [0.3, 1.0, 3.0, 5.0])
@pytest.mark.parametrize("budget_seconds", [20, 60])
@pytest.mark.parametrize("training", ["step", "no step", "late step", "brief step"])
def test_no_measurement_starts_that_would_end_after_the_budget(
    training, budget_seconds, turn_seconds, make_source, monkeypatch
):
    spent_seconds = 13 if training == "late step" else 0
    source = make_source(batch_size=32)
    clock = Clock(monkeypatch, turn_seconds=turn_seconds)
    example_count = 2000 if training == "brief step" else None
    step = Training(source, step_seconds=0.0, example_count=example_count)
    record = tuner.tune(
        source,
        settings=InputSettings(tuning_seconds=budget_seconds),
        train=None if training == "no step" else step,
        candidates=[Columns()],
        spent_seconds=spent_seconds,
    )
    assert spent_seconds + clock.passed_seconds <= budget_seconds
    assert record.tuning_time_seconds == pytest.approx(spent_seconds + clock.passed_seconds)
    assert record.final is None or record.final.rounds > 1


@pytest.mark.parametrize("second", ["without time", "no faster one"])
def test_what_was_proven_stays_where_looking_at_others_proves_nothing(
    second, make_source, monkeypatch
):
    source = make_source(batch_size=32)
    train = Training(source, example_count=1e9)
    rates = {None: 100.0, False: 200.0}  # by autotune: of the default and of columns

    def rate(timed):
        if timed.dataset is train.repeated_batch():
            return 400.0
        return rates[timed.dataset.options().autotune.enabled]

    clock = Clock(monkeypatch, turn_seconds=0.1, rate=rate)

    class Last(Columns):
        name = "last"

        def build(self, source, *, limits):
            if second == "without time":
                clock.passed_seconds += 100
            rates[False] = 100.0
            return super().build(source, limits=limits)

    record = tune_with(source, train, Columns(), Last())
    assert record.chosen == record.final.candidate == "columns"
    assert record.final.ratio.value == 2
    assert record.rounds >= measure.MIN_ROUNDS
    assert record.is_conclusive


@pytest.mark.parametrize("failing", [0, 1])
def test_user_code_that_fails_with_a_candidate_drops_that_alone(failing, make_source, monkeypatch):
    source = make_source(batch_size=32)
    train = Training(source, example_count=1e6)
    own, factories = train.dataset, []

    def dataset(factory):
        if factory is not source.default_factory:
            factories.append(factory)
            if len(factories) == failing + 1:
                raise ValueError("cannot be called again")
        return own(factory)

    def rate(timed):
        return 400.0 if timed.dataset is train.repeated_batch() else 100.0

    monkeypatch.setattr(train, "dataset", dataset)
    monkeypatch.setattr(Diagnosis, "user_share", 0.1)
    Clock(monkeypatch, turn_seconds=0.1, rate=rate)
    record = tune_with(source, train, Columns(), Twin())
    name = ["columns", "columns+autotune"][failing]
    assert record.outcome(name).status == "dropped"
    assert record.outcome(name).reason == "ValueError: cannot be called again"
    assert record.outcome("twin").ratio is not None


def test_one_noisy_round_does_not_say_that_training_is_fed(make_source, monkeypatch):
    source = make_source(batch_size=32)
    train = Training(source, step_seconds=0.0, example_count=1e5)
    train.batch_size = 48  # of stages that the code adds
    alone = iter([96.0])  # the step, with a disturbance; then it is three times as fast

    def rate(timed):
        is_step_alone = timed.dataset is train.repeated_batch()
        return next(alone, 300.0) if is_step_alone else 100.0

    Clock(monkeypatch, turn_seconds=0.5, rate=rate)
    record = tune_with(source, train)
    assert record.batch_size == 48
    assert record.diagnosis.rounds >= measure.MIN_ROUNDS
    assert record.diagnosis.headroom_ratio.value == 3.0
    assert "Reading does not slow training" not in record.reason


def test_autotune_is_left_on_where_that_serves_the_users_own_stages(make_source, monkeypatch):
    source = make_source(batch_size=32)
    train = Training(source, example_count=1e5)

    def rate(timed):
        if timed.dataset is train.repeated_batch():
            return 400.0
        return {None: 100.0, False: 200.0, True: 300.0}[timed.dataset.options().autotune.enabled]

    Clock(monkeypatch, turn_seconds=0.1, rate=rate)
    assert tune_with(source, train).chosen == "columns"  # next to nothing is the user's
    monkeypatch.setattr(Diagnosis, "user_share", 0.1)
    record = tune_with(source, train)
    assert record.chosen == record.final.candidate == "columns+autotune"
    assert record.outcome("columns").ratio.value == 2
    assert record.outcome(record.chosen).ratio.value == 3
    assert record.outcome("columns").reason.endswith("but columns+autotune was chosen")


@pytest.mark.usefixtures("brief_diagnosis")
@pytest.mark.parametrize("has_step", [True, False])
def test_where_the_order_must_stay_no_shuffled_input_is_exchanged(make_source, has_step):
    """Data that are not shuffled have one order."""
    source = slowed(make_source(), 0.02)
    shuffled, in_order = (
        tuner.tune(
            source.replace_options(shuffle=is_shuffled),
            settings=InputSettings(tuning_seconds=120),
            candidates=[Columns()],
            train=Training(source) if has_step else None,
            keeps_order=True,
        )
        for is_shuffled in (True, False)
    )
    assert (shuffled.chosen, in_order.chosen) == ("default", "columns")
    assert "must be reproducible" in shuffled.reason
