"""Two trainings in one folder."""

import subprocess
import sys

import model_cases
import pytest
from model_cases import captured

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.training.recovery.folder_lock import FolderLock
from tfx_perf.training.session import TrainingSession

pytestmark = pytest.mark.each_choice

HOLD = """
import sys, time
from tfx_perf.training.recovery.folder_lock import FolderLock
lock = FolderLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that trains with the folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.slow
def test_a_second_training_says_so_and_touches_nothing(keras, tmp_path, holder):
    draft = tmp_path / "fit-0" / "abc" / "draft-1"
    draft.mkdir(parents=True)
    settings = PerfConfig.from_dict({"training": {"checkpoint_folder": str(tmp_path)}})
    call = captured(model_cases.dense(keras), model_cases.regression())
    with pytest.raises(errors.UserError, match="no other training uses. Received") as caught:
        TrainingSession(settings).fit(call)
    assert "\n" not in str(caught.value)
    assert draft.exists()
    assert int(call.model.optimizer.iterations) == 0
    holder.kill()
    holder.wait()
    session = TrainingSession(settings)
    session.fit(call)
    session.close()
    assert int(call.model.optimizer.iterations) > 0
    assert not list(tmp_path.glob("*.lock"))


def test_where_no_lock_can_be_written_the_training_goes_on(tmp_path, caplog):
    (tmp_path / "file").touch()
    FolderLock(tmp_path / "file" / "folder").acquire()
    assert "is not locked" in caplog.text
