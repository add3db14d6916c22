"""Trainings that are killed give, once they are gone on with, what they would have given.

On SIGTERM they save before they end (`termination`).
"""

import pathlib
import signal

import pytest
from interrupted import Trainings

pytestmark = pytest.mark.one_case


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def trainings(request, tmp_path_factory):
    runner = Trainings(request.param, tmp_path_factory.mktemp(request.param))
    yield runner
    runner.close()


def newest(folder):
    return max(pathlib.Path(folder, "fit-0").glob("*/checkpoint-*"))


def ended_by(result, number):
    assert result.signal == number, result.output
    return result


def ended(result):
    assert "outcome" in result.values, result.output
    return result.values


def test_kills_and_a_damaged_checkpoint_change_nothing(trainings, tmp_path):
    folder = str(tmp_path / "checkpoints")
    plan = {"steps_per_call": 4}
    logs = [str(tmp_path / name) for name in ("expected.csv", "found.csv")]
    expected = ended(trainings.run(folder=None, csv=logs[0], **plan))
    assert expected["outcome"]["iterations"] == 30
    plan.update(folder=folder, csv=logs[1])

    ended_by(trainings.run(kill_at=6, **plan), signal.SIGKILL)
    # Calls of 4, 4 and 2 steps, saved as they end: 8, and then, from there, 14.
    again = ended_by(trainings.run(kill_at=14, **plan), signal.SIGKILL)
    assert "goes on from step 8" in again.output
    assert newest(folder).name.startswith("checkpoint-000000000014")

    file = newest(folder) / "variables.data-00000-of-00001"
    file.write_bytes(file.read_bytes()[:-7])
    skipped = newest(folder)
    terminated = ended_by(trainings.run(terminate_at=21, **plan), signal.SIGTERM)
    assert f"{skipped} is damaged" in terminated.output
    assert "goes on from step 8" in terminated.output

    last = ended(trainings.run(**plan))
    assert last["resumed_step"] == 24  # SIGTERM came after step 24 and let the call end
    assert last["outcome"] == expected["outcome"]
    assert last["step_count"] == 6
    assert pathlib.Path(logs[0]).read_text() == pathlib.Path(logs[1]).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"is_stateful": True, "is_random": False},  # plain fit; data whose state cannot be saved
        {"steps_per_call": 3, "replicas": 1, "steps_per_epoch": 7},
        {"steps_per_call": 4, "xla_call": True, "replicas": 1},
    ],
    ids=["stateful", "strategy", "compiled"],
)
def test_every_kind_of_training_goes_on(trainings, tmp_path, options):
    expected = ended(trainings.run(folder=None, **options))
    folder = str(tmp_path / "checkpoints")
    ended_by(trainings.run(folder=folder, kill_at=17, **options), signal.SIGKILL)
    last = ended(trainings.run(folder=folder, **options))
    assert last["outcome"] == expected["outcome"]
    assert last["resumed_step"] >= 12
    assert len(last["notes"]) == ("is_stateful" in options)
    assert all(note.endswith("order every time: EagerPyFunc is stateful") for note in last["notes"])


@pytest.mark.parametrize(
    "options",
    [
        {"steps_per_call": 4},
        {"steps_per_call": 3, "steps_per_epoch": 7},
        {"is_random": False},
    ],
    ids=["calls", "several passes", "plain"],
)
def test_a_training_on_several_replicas_goes_on(trainings, tmp_path, options):
    options["replicas"] = 2
    expected = ended(trainings.run(folder=None, **options))
    folder = str(tmp_path / "checkpoints")
    ended_by(trainings.run(folder=folder, kill_at=6, **options), signal.SIGKILL)
    ended_by(trainings.run(folder=folder, kill_at=17, **options), signal.SIGKILL)
    last = ended(trainings.run(folder=folder, **options))
    assert last["outcome"] == expected["outcome"]
    assert last["resumed_step"] >= 12
    (note,) = last["notes"]
    assert note.startswith("a training that goes on reads its data again up to where it was")
    assert note.endswith(": a DistributedIterator has no state that can be saved")


@pytest.mark.parametrize("options", [{"steps_per_call": 4}, {}], ids=["calls", "plain"])
def test_nan_on_one_of_several_replicas_is_named(trainings, tmp_path, options):
    found = trainings.run(folder=str(tmp_path), replicas=2, bad_row=12 * 8 // 2 + 6, **options)
    assert "NaN or Inf in step 7, first in input, 1 of 32 values" in found.values["error"]
