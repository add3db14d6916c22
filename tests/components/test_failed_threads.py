"""What is said of threads of workers that have failed (`failed_threads`)."""

import subprocess
import sys

from tfx_perf.components.optimized_trainer.workers import failed_threads

_FAILING = """
import threading
def work():
    raise KeyError("absent")
for name in ("writer", "reader"):
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()
"""


def test_threads_whose_tracebacks_are_in_a_log_are_named_with_it(tmp_path):
    for name, code in (("worker-0", "print('fine')"), ("worker-1", _FAILING)):
        with (tmp_path / f"{name}.log").open("wb") as log:
            subprocess.run([sys.executable, "-c", code], check=True, stdout=log, stderr=log)
    (note,) = failed_threads.notes(tmp_path, names=["worker 0", "worker 1"])
    log = tmp_path / "worker-1.log"
    assert note == f"threads of worker 1 have failed (reader, writer); see {log}"
