"""Warnings, and none where the figures give no reason."""

import pytest
import tensorflow as tf

from tfx_perf.core.statistics import Interval
from tfx_perf.hardware import host
from tfx_perf.input import tuner
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.stages import Stage

pytestmark = pytest.mark.each_choice


@pytest.fixture
def files(make_source, tmp_path):
    """Makes a source over files of so many bytes each."""

    def make(*sizes, suffix=".gz", **options):
        for number, size in enumerate(sizes):
            with tf.io.gfile.GFile(f"{tmp_path}/{number}{suffix}", "wb") as file:
                file.write(b"x" * size)
        return make_source(folder=tmp_path, **{"batch_size": 256, **options})

    return make


def diagnosis(worst="parse", *, share=0.6, bound="input", noise=0.01):
    rest = Stage(
        name="rename", seconds_per_example=1 - share, share=1 - share, examples_per_second=1,
        bytes_per_second=1,
    )  # fmt: skip
    stage = rest.model_copy(update={"name": worst, "seconds_per_example": share, "share": share})
    return Diagnosis(
        pipeline_examples_per_second=Interval(value=100, low=100 - 100 * noise, high=100),
        bound=bound,
        rounds=3,
        stages=(stage, rest),
    )


def codes(source, **settings):
    found = tuner.advise(source, **{"diagnosis": diagnosis(), **settings})
    assert all(item.message.count("\n") == 0 and item.message.endswith(".") for item in found)
    return {item.code for item in found}


def message(code, source, **settings):
    found = tuner.advise(source, **{"diagnosis": diagnosis(), **settings})
    return next(item.message for item in found if item.code == code)


def row(found, *sizes, cpus=4, options=(), suffix=".gz", **settings):
    """Returns a case: which advice is found, with which files, CPUs, options and figures."""
    return found, sizes, {"suffix": suffix, **dict(options)}, cpus, settings


STEADY = Interval(value=5, low=4.9, high=5.1)
NOISY = Interval(value=10, low=7, high=12)
HEALTHY = {"example_count": 9000, "mixing_ratio": 0.9, "trial_rates": [STEADY]}
NO_STAGES = Diagnosis(
    pipeline_examples_per_second=Interval(value=1, low=1, high=1), rounds=1
)  # fmt: skip
FED = diagnosis(bound="compute")
UNGZIPPED, RECORDS = {"suffix": ""}, {"diagnosis": diagnosis("records")}
DECOMPRESS, PARSE, SHUFFLE = (
    {"diagnosis": diagnosis(worst)} for worst in ("decompress", "parse", "shuffle")
)
SMALL, TINY, LAST = {"shuffle_buffer_size": 10_000}, {"batch_size": 8}, {"drop_final_batch": True}
ENDING = {"num_epochs": 1, "batch_size": 300, **LAST}
DROPPED, MANY = "dropped_examples", {"example_count": 1_000_000}


@pytest.mark.parametrize(
    "case",
    [
        *(row("", 1000, 1100, 900, 1000, **HEALTHY, diagnosis=diagnosis(worst))
          for worst in ("read", "decompress", "shuffle", "parse", "transform")),
        row("", 1000, options=TINY, diagnosis=NO_STAGES),
        row("one_gzip_file", 1000, **DECOMPRESS),
        row("tiny_batch", 1000, options=TINY, **PARSE),
        *(row("", 1000, options=TINY, diagnosis=diagnosis(worst, bound="compute"))
          for worst in ("decompress", "parse")),
        row("one_gzip_file", 3 * 2**20, diagnosis=diagnosis("decompress", share=0.71)),
        row("", 3 * 2**20, **PARSE),
        row("few_files", 1000, 1000, 1000, **UNGZIPPED, **RECORDS),
        row("", 1000, 1000, 1000, **UNGZIPPED, **SHUFFLE),
        row("", 1000, 1000, 1000, cpus=3, **UNGZIPPED, **RECORDS),
        row("skewed_files", 8000, 500, 500, 500, 500, cpus=1, **DECOMPRESS),
        row("", 8000, 500, 500, 500, 500, cpus=1, **PARSE),
        row("", 4000, 2000, 2000, 1000, 1000, cpus=1, **DECOMPRESS),  # 40% is not most
        row("skewed_files", 7500, 1500, 500, 500, cpus=1, **DECOMPRESS),
        row("", 6000, 2000, 2000, cpus=1, **DECOMPRESS),  # 60% is less than twice a third
        row("small_shuffle_buffer", 1000, 1000, options=SMALL, **MANY),
        row("", 1000, 1000, options=SMALL, example_count=50_000),
        row("", 1000, 1000, options=SMALL),  # nothing was measured
        # What was measured counts more than a rule of thumb, and training that is fed needs it too.
        row("", 1000, 1000, options=SMALL, **MANY, mixing_ratio=0.9),
        row("small_shuffle_buffer", 1000, 1000, options=SMALL, mixing_ratio=0.2, diagnosis=FED),
        # All fit into the buffer.
        row("", 1000, 1000, options=SMALL, example_count=9000, mixing_ratio=0.2),
        row("", 1000, 1000, options={**SMALL, "shuffle": False}, **MANY, mixing_ratio=0.0),
        row("", *(12 * [100]), **MANY),  # many files mix without a large buffer
        row("", 1000, 1000, options=TINY, **SHUFFLE),
        row("", 1000, 1000, options={"batch_size": 64}),
        row(DROPPED, 1000, 1000, options=ENDING, example_count=1190),
        row(DROPPED, 1000, 1000, options=ENDING, example_count=100),  # all of them
        row("", 1000, 1000, options=ENDING, example_count=1210),
        row("", 1000, 1000, options=ENDING),
        # Batches span epochs: the rest is dropped once.
        *(row("", 1000, 1000, options={**ENDING, **changed}, example_count=1190)
          for changed in ({"num_epochs": 10}, {"num_epochs": None}, {"num_epochs": -1},
                          {"drop_final_batch": False})),
        row("noisy_machine", 1000, 1000, diagnosis=diagnosis(noise=0.5)),
        row("noisy_machine", 1000, 1000, trial_rates=[NOISY]),
        row("one_gzip_file small_shuffle_buffer noisy_machine", 5000, example_count=100_000,
            options={"shuffle_buffer_size": 100}, diagnosis=diagnosis("decompress", noise=0.6)),
    ],
)  # fmt: skip
def test_advice_is_given_where_the_figures_give_reason(case, files, monkeypatch):
    found, sizes, options, cpus, settings = case
    monkeypatch.setattr(host, "cpu_count", lambda: cpus)
    assert codes(files(*sizes, **options), **settings) == set(found.split())


@pytest.mark.parametrize(
    "case",
    [
        ("one_gzip_file", [3 * 2**20], {}, {"diagnosis": diagnosis("decompress", share=0.71)},
         ["decompress takes 71% of the input's time, and the split is one gzip ", "3.00 MiB"]),
        ("few_files", [1000] * 3, UNGZIPPED, RECORDS, ["3 files for 4 CPUs"]),
        ("small_shuffle_buffer", [1000] * 2, SMALL, MANY, ["1.0% of the examples"]),
        ("small_shuffle_buffer", [1000] * 2, SMALL, {"mixing_ratio": 0.2}, ["20% as well"]),
        ("tiny_batch", [1000] * 2, TINY, {}, ["60% of the input's time at 8 examples a batch"]),
        (DROPPED, [1000] * 2, ENDING, {"example_count": 1190}, ["290 of 1,190 examples (24%)"]),
        ("noisy_machine", [1000] * 2, {}, {"trial_rates": [NOISY]}, ["±25%"]),
    ],
)  # fmt: skip
def test_advice_names_the_figures(case, files, monkeypatch):
    code, sizes, options, settings, words = case
    monkeypatch.setattr(host, "cpu_count", lambda: 4)
    said = message(code, files(*sizes, **options), **settings)
    for word in words:
        assert word in said
