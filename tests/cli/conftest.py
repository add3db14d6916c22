"""Helpers of the command line's tests."""

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest
from mlmd_recorder import Recorder

from tfx_perf.cli import main


@pytest.fixture
def run_command() -> Callable[..., subprocess.CompletedProcess]:
    script = pathlib.Path(sys.executable).with_name("tfx-perf")

    def run(*arguments: object) -> subprocess.CompletedProcess:
        command = [str(script), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.fixture
def call_command(monkeypatch, capfd) -> Callable[..., subprocess.CompletedProcess]:
    """Does what `run_command` does without a process, whose start takes longer than the rest."""

    def call(*arguments: object) -> subprocess.CompletedProcess:
        monkeypatch.setattr(sys, "argv", ["tfx-perf", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.main()
        output, error = capfd.readouterr()
        return subprocess.CompletedProcess(sys.argv, ended.value.code or 0, output, error)

    return call


@pytest.fixture
def database(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
def recorder(database: pathlib.Path) -> Recorder:
    return Recorder(database)
