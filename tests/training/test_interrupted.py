"""Killed trainings that are resumed give the results of an uninterrupted one.

On SIGTERM they save before they end (`termination`).
"""

import functools
import json
import pathlib
import signal

import pytest

from tests import processes
from tests.training import script_forks

pytestmark = pytest.mark.one_case

_SCRIPT = pathlib.Path(__file__).with_name("interrupted.py")


def run(package, **options):
    """Returns the ended process of a training."""
    return script_forks.run(_SCRIPT, package, json.dumps(options))


@pytest.fixture(params=["keras", "tf_keras"])
def trainings(request):
    return functools.partial(run, request.param)


def newest(folder):
    return max(pathlib.Path(folder, "fit-0").glob("*/checkpoint-*"))


def ended_by(done, number):
    assert done.returncode == -number, done.stderr
    return done.stderr


def ended(done):
    return json.loads(processes.last_line(done))


def test_kills_and_a_damaged_checkpoint_change_nothing(trainings, tmp_path):
    folder = str(tmp_path / "checkpoints")
    plan = {"steps_per_execution": 4}
    logs = [str(tmp_path / name) for name in ("expected.csv", "found.csv")]
    expected = ended(trainings(csv=logs[0], **plan))
    assert expected["outcome"]["iterations"] == 30
    plan.update(folder=folder, csv=logs[1])

    ended_by(trainings(kill_at=6, **plan), signal.SIGKILL)
    # Calls of 4, 4 and 2 steps, saved as they end: 8, and then, from there, 14.
    again = ended_by(trainings(kill_at=14, **plan), signal.SIGKILL)
    assert "resumes from step 8" in again
    assert newest(folder).name.startswith("checkpoint-000000000014")

    file = newest(folder) / "variables.data-00000-of-00001"
    file.write_bytes(file.read_bytes()[:-7])
    skipped = newest(folder)
    terminated = ended_by(trainings(terminate_at=21, **plan), signal.SIGTERM)
    assert f"{skipped} is damaged" in terminated
    assert "resumes from step 8" in terminated

    last = ended(trainings(**plan))
    assert last["resumed_step"] == 24  # SIGTERM came after step 24, and the call was completed
    assert last["outcome"] == expected["outcome"]
    assert last["step_count"] == 6
    assert pathlib.Path(logs[0]).read_text() == pathlib.Path(logs[1]).read_text()


_ORDER = "order every time: EagerPyFunc is stateful"
_NO_STATE = ": a DistributedIterator has no state that can be saved"


@pytest.mark.slow_where("*stateful", "*replicas", "*passes", "*compiled")
@pytest.mark.parametrize(
    ("options", "noted"),
    [
        ({"is_stateful": True, "is_random": False}, _ORDER),  # Keras fit
        ({"steps_per_execution": 3, "replicas": 1, "steps_per_epoch": 7}, None),
        ({"steps_per_execution": 4, "xla_loop": True, "replicas": 1}, None),
        ({"steps_per_execution": 4, "replicas": 2}, _NO_STATE),
        ({"steps_per_execution": 3, "steps_per_epoch": 7, "replicas": 2}, _NO_STATE),
        ({"is_random": False, "replicas": 2}, _NO_STATE),
    ],
    ids=["stateful", "strategy", "compiled", "replicas", "several passes", "plain replicas"],
)
def test_every_kind_of_training_resumes(trainings, tmp_path, options, noted):
    expected = ended(trainings(**options))
    options["folder"] = str(tmp_path / "checkpoints")
    if options.get("replicas") == 2:
        ended_by(trainings(kill_at=6, **options), signal.SIGKILL)
    ended_by(trainings(kill_at=17, **options), signal.SIGKILL)
    last = ended(trainings(**options))
    assert last["outcome"] == expected["outcome"]
    assert last["resumed_step"] >= 12
    assert [each.endswith(noted or "") for each in last["notes"]] == [True] * (noted is not None)


@pytest.mark.parametrize("options", [{"steps_per_execution": 4}, {}], ids=["calls", "plain"])
def test_nan_on_one_of_several_replicas_is_named(trainings, tmp_path, options):
    done = trainings(folder=str(tmp_path), replicas=2, bad_row=12 * 8 // 2 + 6, **options)
    assert "NaN or Inf in step 7, first in input, 1 of 32 values" in done.stderr
