"""An Airflow of its own, installed into a cache folder: no TFX, no tfx_perf."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[3]
_CACHE = pathlib.Path(os.environ.get("TFX_PERF_AIRFLOW_CACHE", _ROOT / ".airflow"))

AIRFLOW_2 = ("apache-airflow>=2.10,<3", "psycopg2-binary")
AIRFLOW_2_PROVIDERS = (
    "apache-airflow>=2.10,<3",
    "apache-airflow-providers-cncf-kubernetes",
    "apache-airflow-providers-docker",
)
AIRFLOW_3 = ("apache-airflow>=3.1,<4",)


def environment(requirements: tuple[str, ...]) -> pathlib.Path:
    """Returns the folder of the programs; installs them the first time, or skips the test."""
    if sys.version_info >= (3, 13) and "apache-airflow>=2.10,<3" in requirements:
        pytest.skip("There is no Airflow 2 for this Python.")
    key = hashlib.sha256(repr((requirements, sys.version_info[:2])).encode()).hexdigest()[:12]
    folder = _CACHE / key
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of pytest
        if not (folder / "installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                _install(folder, requirements)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"Airflow cannot be installed: {getattr(error, 'stderr', error)}")
            (folder / "installed").touch()
    return folder / "bin"


def _install(folder: pathlib.Path, requirements: tuple[str, ...]) -> None:
    own_uv = _ROOT / ".uv" / "bin" / "uv"
    uv = shutil.which("uv") or (str(own_uv) if own_uv.exists() else None)
    python = str(folder / "bin" / "python")
    if uv:
        _run(uv, "venv", "--python", sys.executable, str(folder))
        _run(uv, "pip", "install", "--python", python, "--compile-bytecode", *requirements)
    else:
        _run(sys.executable, "-m", "venv", str(folder))
        _run(python, "-m", "pip", "install", *requirements)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
