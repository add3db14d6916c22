import pathlib
import shutil
import subprocess
import sys

import pytest
import wheels


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A wheel of the tree under test."""
    return wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A uv that runs: the machine's, or one from the registry."""
    if found := shutil.which("uv"):
        return found
    folder = tmp_path_factory.mktemp("uv")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "uv"]
    subprocess.run(command, check=True)
    return str(folder / "bin" / "uv")
