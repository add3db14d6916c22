"""The wheel in an environment that had only pip: Keras scripts work, the rest names the extra."""

import json
import subprocess
import sys

import pytest
import wheels

from tests import processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_SCRIPT = """
import {package} as keras
import numpy as np
import tfx_perf

model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.random.default_rng(0).normal(size=(6400, 8)).astype("float32")
with tfx_perf.optimized({{"gate": {{"baseline_uri": "baseline"}}}}, folder="perf") as run:
    model.fit(x, x[:, :1], batch_size=32, epochs=3, verbose=0)
print(run.record.train_step_count, run.decision.blessed)
"""
_TFX = ("tfx", "ml_metadata", "apache_beam", "tensorflow_data_validation")


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory):
    """Where the programs of the environment are."""
    environment = tmp_path_factory.mktemp("without") / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    constraints = str(wheels.ROOT / "constraints.txt")
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "-c", constraints, str(wheel)], check=True)
    return environment / "bin"


@pytest.fixture
def call(programs, tmp_path):
    """Returns the exit code of a program there, and what it wrote."""

    def run(program, *arguments):
        environment = wheels.environment(programs)
        done = processes.run(programs / program, *arguments, cwd=tmp_path, env=environment)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("name", _TFX)
def test_nothing_of_tfx_was_installed(call, name):
    assert call("python", "-c", f"import {name}")[0] == 1


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_keras_script_trains_and_is_judged(call, tmp_path, package):
    (tmp_path / "train.py").write_text(_SCRIPT.format(package=package))
    code, out, err = call("python", "train.py")
    assert code == 0, err
    assert out.splitlines()[-1] == "600 True"
    assert (tmp_path / "perf" / "report.html").is_file()
    for folder in ("perf", "baseline"):
        code, out, err = call("tfx-perf", "history", folder, "--json")
        assert code == 0, err
        assert len(json.loads(out)) == 1


def test_doctor_says_that_it_works_and_what_pipelines_need(call):
    code, out, _ = call("tfx-perf", "doctor", "--json")
    found = json.loads(out)
    assert (code, found["works"]) == (0, True)
    (tfx,) = (each for each in found["findings"] if each["item"] == "TFX")
    assert "pip install" in tfx["remark"]


@pytest.mark.parametrize("command", [["demo"], ["history", "metadata.sqlite"], ["--help"]])
def test_a_command_that_needs_tfx_says_so_in_a_line(call, tmp_path, command):
    (tmp_path / "metadata.sqlite").touch()
    code, _, err = call("tfx-perf", *command)
    assert code == (0 if command == ["--help"] else 2), err
    assert command == ["--help"] or err.splitlines()[-1].endswith("pip install 'tfx-perf[tfx]'.")


@pytest.mark.parametrize(
    "statement", ["import tfx_perf.components", "from tfx_perf.components import InputTuner"]
)
def test_the_components_name_the_extra(call, statement):
    code, _, err = call("python", "-c", statement)
    assert code == 1
    assert "pip install 'tfx-perf[tfx]'" in err.splitlines()[-1]
