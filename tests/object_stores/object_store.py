"""Servers that speak S3's and Google Cloud Storage's protocols, and processes that use them."""

import contextlib
import importlib.metadata
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests import processes
from tests.ports import free_port

_ROOT = pathlib.Path(__file__).parents[2]
_CREATE = {
    "s3": "import s3fs; s3fs.S3FileSystem().mkdir('bucket')",
    "gs": "",  # the emulator makes the bucket
}
_STARTUP_SECONDS = 30
# What is installed comes first: the drivers' own dependencies may be too new for TensorFlow.
_LAST_ON_PATH = "import sys; sys.path.append({folder!r})"


def install(folder: pathlib.Path) -> None:
    """Installs the drivers and the servers into a folder, beside what is installed already."""
    version = importlib.metadata.version("fsspec")  # each driver fits one
    done = processes.python(
        "-m", "pip", "install", "--quiet", "--target", folder / "packages", "moto[server]",
        "gcp-storage-emulator", f"s3fs=={version}", f"gcsfs=={version}",
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"pip cannot install the servers: {done.stderr.strip().splitlines()[-1]}")
    begin = _LAST_ON_PATH.format(folder=str(folder / "packages"))
    (folder / "sitecustomize.py").write_text(begin)


@contextlib.contextmanager
def serve(scheme: str, folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Starts the server; yields the variables of a process that uses it.

    Args:
        scheme: `s3` or `gs`.
        folder: see `install`.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    arguments = {
        "s3": ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        "gs": ["-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}",
               "--in-memory", "--default-bucket=bucket"],
    }[scheme]  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder}:{_ROOT}:{_ROOT}/tests/components:{_ROOT}/tests/object_stores",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "STORAGE_EMULATOR_HOST": address,
    }
    with subprocess.Popen(
        [sys.executable, *arguments],
        env={**environment, "PYTHONPATH": str(folder / "packages")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            _wait_for(port)
            processes.python("-c", _CREATE[scheme], env=environment, check=True)
            yield environment
        finally:
            server.terminate()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _STARTUP_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    pytest.fail(f"no server on port {port} after {_STARTUP_SECONDS} s")
