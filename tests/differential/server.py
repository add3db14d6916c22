"""Trainings in processes of their own; run as a module by `Trainings`."""

import importlib
import pathlib
import signal
import sys
from typing import Any

from tests.fuzzing import forks

from .cases import Case


class Trainings:
    def __init__(self, package: str) -> None:
        self._forks = forks.Forks(__name__, package)

    def run(self, case: Case, folder: pathlib.Path, *, role: str) -> forks.Ended:
        request = {"case": case.to_json(), "folder": str(folder), "role": role}
        return self._forks.run(request, folder, name=role)

    def close(self) -> None:
        self._forks.close()


def _train(request: dict[str, Any]) -> dict[str, Any]:
    from . import interruption, training

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    case, folder = Case.from_json(request["case"]), pathlib.Path(request["folder"])
    try:
        return training.train(case, folder, role=request["role"])
    finally:
        interruption.empty_the_disk()


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
        "tfx_perf.training.tuning.choosing",
        f"{__package__}.training",
    ):
        importlib.import_module(name)
    _leave_autograph_to_users_code()
    forks.serve(_train)


if __name__ == "__main__":
    _main(*sys.argv[1:])
