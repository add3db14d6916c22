"""What a plan gets when the candidate is chosen: statistics of both outputs, and a copy."""

import pytest
import tuning_cases

from tfx_perf import statistics
from tfx_perf.components.examples import sources
from tfx_perf.components.input_tuner import plan_additions
from tfx_perf.input.record import CandidateOutcome
from tfx_perf.input.search.copy_trial import CopyTrial

TRIAL = CopyTrial(
    ratio=statistics.Interval(value=2, low=1.5, high=2.5), sample_share=1.0, copy_bytes=1000,
    copy_seconds=1.0, shard_count=2, payback_epochs=3.0,
)  # fmt: skip
STREAMS = tuning_cases.tuning_record(
    chosen="block_reader",
    outcomes=tuple(
        CandidateOutcome(name=name, description="", status=status)
        for name, status in (("default", "measured"), ("block_reader", "chosen"))
    ),
    copy_trial=TRIAL,
)


@pytest.fixture
def examples(tmp_path):
    return tuning_cases.examples_in(tmp_path / "examples")


@pytest.fixture
def source(examples, tmp_path):
    schema = tuning_cases.schema_in(tmp_path / "schema")
    return sources.record_source(
        [examples],
        split="train",
        schema=sources.read_schema(transform_graph=None, schema=[schema]),
        batch_size=16,
        label_key="label_xf",
    )


def with_copy(source, *, epochs, folder):
    return plan_additions.with_copy(
        STREAMS, source, epochs=epochs, folder=str(folder), beam_pipeline_args=[]
    )


def numbers(dataset):
    return sorted(n for features, _ in dataset for n in features["number_xf"].numpy().ravel())


def test_a_copy_that_pays_for_itself_is_written_and_read(examples, source, tmp_path, caplog):
    plan = with_copy(source, epochs=4, folder=tmp_path)
    assert plan.chosen == "block_reader+copy"
    assert [outcome.name for outcome in plan.outcomes] == ["default", plan.chosen]
    assert plan.reason.endswith(TRIAL.verdict)
    assert len(list((tmp_path / "copy").iterdir())) == 2
    factory = sources.plan_factory([examples], plan)
    once = source.replace_options(num_epochs=1)
    read = factory(list(once.file_patterns), once.options, once.schema)
    assert numbers(read) == list(range(tuning_cases.COUNT))
    said = [record for record in caplog.records if record.name.startswith("tfx_perf")]
    assert not said  # it has not fallen back to the files


@pytest.mark.parametrize("epochs", [None, 2])
def test_training_that_is_too_short_or_of_unknown_length_gets_no_copy(source, tmp_path, epochs):
    assert with_copy(source, epochs=epochs, folder=tmp_path) is STREAMS
    assert not (tmp_path / "copy").exists()


def test_a_copy_that_cannot_be_written_costs_only_itself(source, tmp_path, caplog):
    (tmp_path / "file").touch()
    assert with_copy(source, epochs=4, folder=tmp_path / "file") is STREAMS
    assert "The copy could not be written." in caplog.text


def test_the_statistics_of_what_is_chosen_are_held_against_the_defaults(examples, source, tmp_path):
    def with_statistics(plan):
        return plan_additions.with_statistics(
            plan, source, examples=[examples], folder=str(tmp_path / "plan"), seconds=60
        )

    default = tuning_cases.tuning_record()
    assert with_statistics(default) is default
    assert not (tmp_path / "plan").exists()
    found = with_statistics(STREAMS).statistics
    assert found.agree
    assert (found.example_count, found.complete) == (tuning_cases.COUNT, True)
    names = {path.name for path in (tmp_path / "plan" / "statistics").iterdir()}
    assert names == {"default.pb", "tuned.pb"}
