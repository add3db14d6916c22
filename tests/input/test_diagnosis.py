"""Input-bound, compute-bound or neither."""

import pytest
from slow_data import Training

from tfx_perf.core import statistics
from tfx_perf.input import measure
from tfx_perf.input.diagnosis import Diagnosis, diagnose, judge
from tfx_perf.input.stages import Stage

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("short_blocks")]


def samples(**rates):
    return {
        name: [measure.Sample(examples_per_second=rate, cpu_seconds_per_example=0) for rate in own]
        for name, own in rates.items()
    }


@pytest.mark.parametrize(
    ("pipeline", "train", "together", "bound"),
    [
        ([54, 55, 53], [912, 900, 905], [54, 53, 52], "input"),
        ([5000, 5100, 4900], [100, 101, 99], [99, 100, 98], "compute"),
        ([500, 510, 490], [400, 410, 390], [200, 205, 195], "contention"),
        ([400, 390, 410], [400, 400, 400], [200, 200, 200], "contention"),  # as fast as each other
        ([500, 510, 490], [100, 120, 90], [99, 80, 95], "unknown"),  # too noisy
        ([54, 55], [70, 71], [54, 53], "unknown"),  # too few rounds
        ([54], [912], [54], "input"),  # so far apart that one round is enough
    ],
)
def test_bound(pipeline, train, together, bound):
    found = judge(samples(pipeline=pipeline, train=train, together=together))
    assert found.bound == bound
    assert found.is_fed == (bound == "compute")
    assert found.rounds == len(pipeline)


def test_the_machine_may_drift():
    slower = [1, 0.5, 0.25]
    found = judge(
        samples(
            pipeline=[9000 * factor for factor in slower],
            train=[1000 * factor for factor in slower],
            together=[990 * factor for factor in slower],
        )
    )
    assert found.bound == "compute"
    assert found.headroom_ratio.value == pytest.approx(1000 / 990)


def test_verdict_names_numbers_and_remedy():
    found = judge(samples(pipeline=[54_321] * 3, train=[912_345] * 3, together=[53_667] * 3))
    stages = [
        Stage(name=name, seconds_per_example=share, share=share, examples_per_second=1,
              bytes_per_second=1)
        for name, share in [("read", 0.29), ("parse", 0.71)]
    ]  # fmt: skip
    found = found.model_copy(update={"stages": tuple(stages)})
    assert found.bottleneck.name == "parse"
    assert found.verdict.startswith(
        "Input-bound: the step alone trains 912,000 examples/s, fed by the default 53,700; "
        "training would be 17 times as fast if input cost nothing. Most of the input's time goes "
        "into parse (71%): parse "
    )


def test_fed_says_to_change_nothing():
    found = judge(samples(pipeline=[5000] * 3, train=[100] * 3, together=[98] * 3))
    assert "Compute-bound" in found.verdict
    assert "2.0% at most (range of 3 rounds), so the default stays." in found.verdict


def test_other_verdicts():
    contention = samples(pipeline=[500] * 3, train=[400] * 3, together=[200] * 3)
    assert "together they reach 200; training would be 2 times" in (judge(contention).verdict)
    unknown = samples(pipeline=[500] * 2, train=[9.876] * 2, together=[9] * 2)
    assert "after 2 rounds: the step alone trains 9.88 examples/s" in (judge(unknown).verdict)


def test_slow_input_is_measured_as_such(make_source, tmp_path, monkeypatch):
    # Blocks of 15 batches: the few that are prefetched before one begins count little.
    monkeypatch.setattr(measure, "_BLOCK_SECONDS", 0.3)
    source = make_source(num_epochs=1)
    train = Training(source, input_seconds=0.02)
    found = diagnose(source, train.dataset(source.default_factory), train=train, seconds=10)
    assert found.bound == "input"
    assert found.pipeline_examples_per_second.high < 1.25 * 16 / 0.02
    assert found.headroom_ratio.value > 2
    assert found.bottleneck.name == "transform"
    assert "Input-bound" in found.verdict
    found.write(tmp_path / "diagnosis.json")
    assert Diagnosis.read(tmp_path / "diagnosis.json") == found


def test_slow_step_is_measured_as_such(make_source):
    source = make_source()
    train = Training(source, step_seconds=0.05)
    found = diagnose(source, train.dataset(source.default_factory), train=train, seconds=2)
    assert found.train_examples_per_second.high < 16 / 0.05
    assert found.pipeline_examples_per_second.value > 2 * found.train_examples_per_second.value
    assert found.bound != "input"


def test_without_training_code(make_source):
    source = make_source()
    found = diagnose(source, source.default(), train=None, seconds=10)
    assert found.bound == "unknown"
    assert not found.is_fed
    assert found.headroom_ratio is None
    assert isinstance(found.pipeline_examples_per_second, statistics.Interval)
    assert found.verdict.startswith("The default input pipeline alone yields ")
    assert found.bottleneck.remedy in found.verdict


def test_without_time_there_are_the_rates(make_source):
    source = make_source()
    found = diagnose(source, source.default(), train=None, seconds=0)
    assert found.rounds == 1
    assert found.stages == ()
