import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.one_case

SCRIPT = pathlib.Path(__file__).with_name("two_devices.py")


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_two_replicas_train_as_plain_fit_does(package):
    done = subprocess.run(
        [sys.executable, SCRIPT, package],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
