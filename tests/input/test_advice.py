"""Warnings, and none where the figures give no reason."""

import pytest
import tensorflow as tf

from tfx_perf.core.statistics import Interval
from tfx_perf.hardware import host
from tfx_perf.input import advice
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.input.stages import Stage

pytestmark = pytest.mark.each_choice


@pytest.fixture
def four_cpus(monkeypatch):
    monkeypatch.setattr(host, "cpu_count", lambda: 4)


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
    found = advice.advise(source, **{"diagnosis": diagnosis(), **settings})
    assert all(item.message.count("\n") == 0 and item.message.endswith(".") for item in found)
    return {item.code for item in found}


def message(code, source, **settings):
    found = advice.advise(source, **{"diagnosis": diagnosis(), **settings})
    return next(item.message for item in found if item.code == code)


def test_a_healthy_pipeline_needs_none(files, four_cpus):
    source = files(1000, 1100, 900, 1000)
    settings = {
        "example_count": 9000,
        "mixing_ratio": 0.9,
        "trial_rates": [Interval(value=5, low=4.9, high=5.1)],
    }
    for worst in ("read", "decompress", "shuffle", "parse", "transform"):
        assert codes(source, diagnosis=diagnosis(worst), **settings) == set()


def test_without_stages_nothing_is_said_of_them(files, four_cpus):
    source = files(1000, batch_size=8)
    rate = Interval(value=1, low=1, high=1)
    assert codes(source, diagnosis=Diagnosis(pipeline_examples_per_second=rate, rounds=1)) == set()


def test_fed_training_gets_no_advice_on_speed(files, four_cpus):
    source = files(1000, batch_size=8)
    for worst in ("decompress", "parse"):
        assert codes(source, diagnosis=diagnosis(worst))
        fed = diagnosis(worst, bound="compute")
        assert codes(source, diagnosis=fed) == set()


def test_one_gzip_file(files, four_cpus):
    source = files(3 * 2**20)
    assert codes(source, diagnosis=diagnosis("decompress", share=0.71)) == {"one_gzip_file"}
    text = message("one_gzip_file", source, diagnosis=diagnosis("decompress", share=0.71))
    assert text.startswith("decompress takes 71% of the input's time, and the split is one gzip ")
    assert "3.00 MiB" in text
    assert codes(source, diagnosis=diagnosis("parse")) == set()


def test_fewer_files_than_cpus(files, four_cpus, monkeypatch):
    source = files(1000, 1000, 1000, suffix="")
    assert codes(source, diagnosis=diagnosis("records")) == {"few_files"}
    assert "3 files for 4 CPUs" in message("few_files", source, diagnosis=diagnosis("records"))
    assert codes(source, diagnosis=diagnosis("shuffle")) == set()
    monkeypatch.setattr(host, "cpu_count", lambda: 3)
    assert codes(source, diagnosis=diagnosis("records")) == set()


@pytest.mark.parametrize(
    ("sizes", "skewed"),
    [
        ([8000, 500, 500, 500, 500], True),
        ([4000, 2000, 2000, 1000, 1000], False),  # 40 % is not most
        ([7500, 1500, 500, 500], True),
        ([6000, 2000, 2000], False),  # 60 % is less than twice a third
    ],
)
def test_skewed_files(sizes, skewed, files, monkeypatch):
    monkeypatch.setattr(host, "cpu_count", lambda: 1)
    source = files(*sizes)
    found = codes(source, diagnosis=diagnosis("decompress"))
    assert found == ({"skewed_files"} if skewed else set())
    assert codes(source, diagnosis=diagnosis("parse")) == set()


def test_small_shuffle_buffer(files):
    source = files(1000, 1000, shuffle_buffer_size=10_000)
    few = {"small_shuffle_buffer"}
    assert codes(source, example_count=1_000_000) == few
    assert "1.0% of the examples" in message(
        "small_shuffle_buffer", source, example_count=1_000_000
    )
    assert codes(source, example_count=50_000) == set()
    assert codes(source) == set()  # nothing was measured
    # What was measured counts more than a rule of thumb, and training that is fed needs it too.
    assert codes(source, example_count=1_000_000, mixing_ratio=0.9) == set()
    assert codes(source, mixing_ratio=0.2, diagnosis=diagnosis(bound="compute")) == few
    assert "20% as well" in message("small_shuffle_buffer", source, mixing_ratio=0.2)
    assert codes(source, example_count=9000, mixing_ratio=0.2) == set()  # all fit into the buffer
    unshuffled = source.replace_options(shuffle=False)
    assert codes(unshuffled, example_count=1_000_000, mixing_ratio=0.0) == set()


def test_many_files_mix_without_a_large_buffer(files):
    source = files(*(12 * [100]))
    assert codes(source, example_count=1_000_000) == set()


def test_tiny_batch(files):
    source = files(1000, 1000, batch_size=8)
    assert codes(source, diagnosis=diagnosis("parse")) == {"tiny_batch"}
    assert "60% of the input's time at 8 examples a batch" in message("tiny_batch", source)
    assert codes(source, diagnosis=diagnosis("shuffle")) == set()
    assert codes(source.replace_options(batch_size=64)) == set()


def test_dropped_examples(files):
    source = files(1000, 1000, num_epochs=1, drop_final_batch=True, batch_size=300)
    assert codes(source, example_count=1190) == {"dropped_examples"}
    assert "290 of 1,190 examples (24%)" in message("dropped_examples", source, example_count=1190)
    assert codes(source, example_count=100) == {"dropped_examples"}  # all of them
    assert codes(source, example_count=1210) == set()
    assert codes(source) == set()
    # Batches span epochs: the rest is dropped once.
    assert codes(source.replace_options(num_epochs=10), example_count=1190) == set()
    for options in ({"num_epochs": None}, {"drop_final_batch": False}):
        assert codes(source.replace_options(**options), example_count=1190) == set()


def test_noisy_machine(files):
    source = files(1000, 1000)
    assert codes(source, diagnosis=diagnosis(noise=0.5)) == {"noisy_machine"}
    trial = Interval(value=10, low=7, high=12)
    assert codes(source, trial_rates=[trial]) == {"noisy_machine"}
    assert "±25%" in message("noisy_machine", source, trial_rates=[trial])


def test_several_at_once(files, four_cpus):
    source = files(5000, shuffle_buffer_size=100)
    found = codes(source, diagnosis=diagnosis("decompress", noise=0.6), example_count=100_000)
    assert found == {"one_gzip_file", "small_shuffle_buffer", "noisy_machine"}
