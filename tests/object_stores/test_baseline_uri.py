"""The folder at `baseline_uri` on servers that speak S3's and Google Cloud Storage's protocols."""

import pathlib
import subprocess
import sys

import pytest

from tests import processes

WRITERS, ENTRIES = 8, 5
_WRITER = str(pathlib.Path(__file__).parents[1] / "gate" / "ledger_cases.py")
_READ = (
    "import sys; from tfx_perf.gate.ledger_store import LedgerFolder; "
    "print(*[entry.run_id for entry in LedgerFolder(sys.argv[1]).read().entries])"
)

pytestmark = pytest.mark.slow


def test_processes_at_the_same_time_lose_nothing(store):
    scheme, environment = store
    uri = f"{scheme}://bucket/some/baseline"
    command = [sys.executable, _WRITER, uri]
    writers = [
        subprocess.Popen([*command, str(writer), str(ENTRIES)], env=environment)
        for writer in range(WRITERS)
    ]
    assert [process.wait() for process in writers] == [0] * WRITERS
    found = processes.python("-c", _READ, uri, env=environment)
    assert sorted(found.stdout.split()) == sorted(
        f"{writer}-{number}" for writer in range(WRITERS) for number in range(ENTRIES)
    ), found.stderr


def test_a_bucket_that_does_not_exist_cannot_be_written(store):
    scheme, environment = store
    done = processes.python(_WRITER, f"{scheme}://missing/baseline", "a", "1", env=environment)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "errors.UserError: Expected a baseline_uri that can be written" in last
