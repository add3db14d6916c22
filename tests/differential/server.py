"""Trainings in processes of their own; run as a module by `Trainings`.

The module imports TensorFlow once and forks for every training, before TensorFlow has begun to
work: a real process each time, without the seconds of the import.
"""

import dataclasses
import gc
import importlib
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import traceback
from typing import Any

from .cases import Case

_LIMIT_SECONDS = 180.0


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a training ended.

    Attributes:
        signal: the signal that ended the process; 0 if none did.
        output: what it wrote.
        error: class and message of the exception that ended it; None if none did.
        values: see `training.train`; empty if it did not come to its end.
        seconds: from the fork to the end.
    """

    signal: int
    output: str
    error: tuple[str, str] | None
    values: dict[str, Any]
    seconds: float


class Trainings:
    """Starts trainings of one Keras line."""

    def __init__(self, package: str) -> None:
        """Starts the process that forks."""
        self._module, above = __name__, pathlib.Path(__file__).parents[1]
        if self._module.startswith("tests."):
            above = above.parent
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(above), os.environ.get("PYTHONPATH", "")]),
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, case: Case, folder: pathlib.Path, *, role: str) -> Ended:
        """Runs a training to its end."""
        folder.mkdir(parents=True, exist_ok=True)
        result, log = folder / f"{role}.pickle", folder / f"{role}.log"
        request = {"case": case.to_json(), "folder": str(folder), "role": role}
        began = time.perf_counter()
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        seconds = time.perf_counter() - began
        values = pickle.loads(result.read_bytes()) if result.exists() else {}
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        output = log.read_text() if log.exists() else ""
        return Ended(number, output, values.pop("error", None), values, seconds)

    def close(self) -> None:
        """Ends the process that forks."""
        self._process.stdin.close()
        self._process.wait(10)


def _child(folder: pathlib.Path, case: Case, role: str) -> None:
    from . import interruption, training

    with open(folder / f"{role}.log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        result = training.train(case, folder, role=role)
        interruption.empty_the_disk()
    except BaseException as error:
        interruption.empty_the_disk()
        traceback.print_exc()
        result = {"error": (type(error).__name__, str(error))}
    (folder / f"{role}.pickle").write_bytes(pickle.dumps(result))
    sys.stderr.flush()
    os._exit(0)


def _wait(child: int) -> int:
    """Returns the status of the child, which is killed if it takes too long."""
    began, pause = time.perf_counter(), 0.002
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.perf_counter() - began > _LIMIT_SECONDS:
            os.kill(child, signal.SIGALRM)
            return os.waitpid(child, 0)[1]
        time.sleep(pause)
        pause = min(0.05, pause * 1.1)


def _leave_autograph_to_users_code() -> None:
    """Has AutoGraph convert what needs it, and nothing of tf_keras.

    So it was when tf_keras was `tf.keras`. Keras' own code has no conditions on tensors, nor
    have our data, and converting it takes ten seconds a training.
    """
    from tensorflow.python.autograph.core import config

    rules = [config.DoNotConvert(name) for name in ("tf_keras", f"{__package__}.data")]
    config.CONVERSION_RULES = (*rules, *config.CONVERSION_RULES)


def _main(package: str) -> None:
    for name in (
        "keras",
        "tf_keras",
        "tensorflow.python.autograph.impl.api",
        "tensorflow.python.ops.ragged.ragged_map_ops",
        "tfx_perf.training.session",
        "tfx_perf.training.trials.choosing",
        f"{__package__}.training",
    ):
        importlib.import_module(name)
    _leave_autograph_to_users_code()
    gc.freeze()  # the forks need not visit what is imported
    gc.freeze()  # the forks need not visit what is imported
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            case = Case.from_json(request["case"])
            _child(pathlib.Path(request["folder"]), case, request["role"])
        print(_wait(child), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
