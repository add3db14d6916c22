"""The folder at `baseline_uri` on servers that speak S3's and Google Cloud Storage's protocols."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

import ledger_cases
import pytest
from ports import free_port

WRITERS, ENTRIES = 8, 5
_ROOT = pathlib.Path(__file__).parents[2]
_CREATE = {
    "s3": "import s3fs; s3fs.S3FileSystem().mkdir('bucket')",
    "gs": "",  # the emulator makes the bucket
}
_READ = (
    "import sys; from tfx_perf.gate.mirror import Mirror; "
    "print(*[entry.run_id for entry in Mirror(sys.argv[1]).read().entries])"
)
_STARTUP_SECONDS = 30

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with the drivers and the servers, beside the environment's own packages."""
    folder = tmp_path_factory.mktemp("packages")
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder),
        "moto[server]", "gcp-storage-emulator", "s3fs", "gcsfs>=2024.2",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot install the servers: {done.stderr.strip().splitlines()[-1]}")
    return folder


@pytest.fixture(params=["s3", "gs"])
def store(request, packages):
    """Starts the server; yields the scheme and the variables that lead a driver to it."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    variables = {
        "PYTHONPATH": f"{packages}:{_ROOT}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "STORAGE_EMULATOR_HOST": address,
    }
    arguments = {
        "s3": ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        "gs": ["-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}",
               "--in-memory", "--default-bucket=bucket"],
    }[request.param]  # fmt: skip
    environment = {**os.environ, **variables}
    with subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            _wait_for(port)
            _python(environment, "-c", _CREATE[request.param]).check_returncode()
            yield request.param, environment
        finally:
            server.terminate()


def _wait_for(port):
    deadline = time.monotonic() + _STARTUP_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    pytest.fail(f"no server on port {port} after {_STARTUP_SECONDS} s")


def _python(environment, *arguments):
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_processes_at_the_same_time_lose_nothing(store):
    scheme, environment = store
    uri = f"{scheme}://bucket/some/baseline"
    processes = [
        subprocess.Popen(
            [sys.executable, ledger_cases.__file__, uri, str(writer), str(ENTRIES)],
            env=environment,
        )
        for writer in range(WRITERS)
    ]
    assert [process.wait() for process in processes] == [0] * WRITERS
    found = _python(environment, "-c", _READ, uri)
    assert sorted(found.stdout.split()) == sorted(
        f"{writer}-{number}" for writer in range(WRITERS) for number in range(ENTRIES)
    ), found.stderr


def test_a_bucket_that_does_not_exist_cannot_be_written(store):
    scheme, environment = store
    done = _python(environment, ledger_cases.__file__, f"{scheme}://missing/baseline", "a", "1")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tfx_perf.errors.UserError: Expected a baseline_uri that can be written")
