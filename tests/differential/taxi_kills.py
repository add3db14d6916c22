"""Kills the taxi template's training at random moments: it must end with the same weights.

For example: `python -m tests.differential.taxi_kills --package tf_keras --kills 100`. Each
training is killed several times, at moments drawn evenly from the time that it takes, and then
run to its end.
"""

import argparse
import faulthandler
import json
import os
import pathlib
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from typing import Any

import numpy as np

_STEPS, _STEPS_PER_CALL, _CHECKPOINT_STEPS = 300, 10, 20
_KILLS_OF_ONE = 4
_LIMIT_SECONDS = 60  # of a training that takes less than ten


def _train(package: str, folder: pathlib.Path, run: pathlib.Path, *, kind: str) -> None:
    """Trains and writes the weights down; the export is left out."""
    from tfx_perf.core import interception
    from tfx_perf.training.keras_api import either_keras

    from . import taxi_module, training
    from .cases import Case

    either_keras.set_random_seed(1)  # the setting `seed`

    def ended(model: Any, history: Any) -> None:
        weights = [np.array(weight) for weight in model.get_weights()]
        listed = model.optimizer.variables
        slots = [np.array(v) for v in (listed() if callable(listed) else listed)]
        result = {"weights": weights + slots, "history": history.history}
        (run / f"{kind}.draft").write_bytes(pickle.dumps(result))
        (run / f"{kind}.draft").rename(run / f"{kind}.pickle")
        os._exit(0)

    case = Case(
        package=package,
        plan=(("steps_per_call", _STEPS_PER_CALL),),
        has_folder=kind != "whole",
        checkpoint_steps=_CHECKPOINT_STEPS,
    )
    session = training.training_under_test(case, run / "checkpoints")

    def fit(call: Any) -> None:
        ended(call.model, call.proceed() if kind == "plain" else session.fit(call))

    with interception.intercepting_fit(fit):
        taxi_module.run_fn(package, folder)(taxi_module.fn_args(folder, steps=_STEPS, run=run))


def _start(package: str, folder: pathlib.Path, run: pathlib.Path, *, kind: str) -> int:
    """Forks a training and returns its process."""
    run.mkdir(exist_ok=True)
    child = os.fork()
    if child:
        return child
    with (run / f"{kind}.log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    faulthandler.dump_traceback_later(_LIMIT_SECONDS, exit=True)
    try:
        _train(package, folder, run, kind=kind)
    finally:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _finished(run: pathlib.Path, child: int, kind: str) -> dict[str, Any]:
    status = os.waitpid(child, 0)[1]
    if status:
        output = (run / f"{kind}.log").read_text()[-3000:]
        raise RuntimeError(f"{kind} ended with {status}:\n{output}")
    return pickle.loads((run / f"{kind}.pickle").read_bytes())


def _apart(expected: dict[str, Any], found: dict[str, Any]) -> float:
    """Returns the largest difference of a variable; also of the History."""
    pairs = list(zip(expected["weights"], found["weights"], strict=True))
    pairs += [(expected["history"][k], found["history"][k]) for k in expected["history"]]
    return max(float(np.max(np.abs(np.subtract(a, b)), initial=0.0)) for a, b in pairs)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", choices=("keras", "tf_keras"), default="keras")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path, help="kept for the next time")
    parser.add_argument("--prepare", action="store_true", help="only make the data")
    arguments = parser.parse_args()
    folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="taxi-"))
    folder.mkdir(exist_ok=True)
    if arguments.prepare:
        from . import taxi_module

        taxi_module.prepare(folder)
        return
    if not (folder / "ready").exists():  # in a process of its own: Beam starts threads
        module = __spec__.name
        status = os.spawnv(
            os.P_WAIT, sys.executable,
            [sys.executable, "-m", module, "--prepare", "--folder", str(folder)],
        )  # fmt: skip
        if status:
            raise SystemExit("The taxi data could not be prepared.")
    _import()
    draw, run = random.Random(arguments.seed), folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    whole = {}
    for kind in ("plain", "whole"):
        began = time.perf_counter()
        whole[kind] = _finished(run, _start(arguments.package, folder, run, kind=kind), kind)
        seconds = time.perf_counter() - began
        print(f"{kind}: {seconds:.1f} s", flush=True)
    print(f"plain fit and the plan are {_apart(whole['plain'], whole['whole']):.1e} apart")
    kills, trainings, bad, steps = 0, 0, 0, []
    while kills < arguments.kills:
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        shutil.rmtree(run / "logs", ignore_errors=True)
        (run / "again.log").unlink(missing_ok=True)
        for _ in range(_KILLS_OF_ONE):
            (run / "again.pickle").unlink(missing_ok=True)
            child = _start(arguments.package, folder, run, kind="again")
            time.sleep(draw.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
            if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
                kills += 1
                steps.append(_newest(run))
        try:
            found = _finished(run, _start(arguments.package, folder, run, kind="again"), "again")
            apart = _apart(whole["whole"], found)
        except RuntimeError as error:
            print(error)
            apart = float("nan")
        trainings += 1
        bad += apart != 0
        if apart != 0:
            print(json.dumps({"apart": apart, "steps": steps[-_KILLS_OF_ONE:]}))
        print(f"{kills} kills, {trainings} trainings, {bad} different", flush=True)
    print(f"checkpoints when it was killed: {sorted(steps)}")
    raise SystemExit(bool(bad))


def _newest(run: pathlib.Path) -> int:
    """Returns the step of the newest checkpoint; -1 if there is none."""
    found = (run / "checkpoints" / "fit-0").rglob("checkpoint-*")
    return max((int(path.name.split("-")[1]) for path in found), default=-1)


def _import() -> None:
    """Imports what every training needs, once."""
    import keras  # noqa: F401
    import tensorflow_transform  # noqa: F401
    import tf_keras  # noqa: F401
    from tfx.components.trainer import fn_args_utils  # noqa: F401
    from tfx.components.util import tfxio_utils  # noqa: F401

    from tfx_perf.training.trials import choosing  # noqa: F401

    from . import training  # noqa: F401


if __name__ == "__main__":
    _main()
