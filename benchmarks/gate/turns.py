"""Refusals that PerfEvaluator measures again in turns: of slower code, and of a slower machine."""

import contextlib
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.gate.results import Turns
from benchmarks.training.artifacts import Artifacts
from benchmarks.training.workloads import Workload
from tfx_perf import isolate
from tfx_perf.components.optimized_trainer import executor as trainer
from tfx_perf.components.perf_evaluator import executor as gate
from tfx_perf.config import PerfConfig
from tfx_perf.gate.decision import AbRerun
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import decide, evaluate

SLOWER_CODE = "code 10% slower"
_HOG = "same code, another process computes half of the time"
_ONE_CORE = "same code, one core instead of all"
CASES = (SLOWER_CODE, _HOG, _ONE_CORE)

_WORKLOAD = Workload("sines", "fashion-raw", 256, "benchmarks.gate.user_module.run_fn")
_STEPS = 1000
_TIMEOUT_SECONDS = 600
_BASELINE_RUNS = 8
# Computes for 50 ms of every 100 ms, while the benchmark runs.
_HOG_CODE = """
import os
import time
benchmark = os.getppid()
while os.getppid() == benchmark:
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end:
        pass
    time.sleep(0.05)
"""


def judge(case: str, *, rounds: int, data_folder: pathlib.Path) -> Turns:
    """Trains and judges `rounds` times; every time beside a new blessed run.

    The machine has no other work when the blessed run trains. Its figures stand for several blessed
    runs that vary as little as on a quiet machine, so that a comparison of runs refuses.
    """
    first, right = 0, 0
    ratios: list[float | None] = []
    seconds: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            given = {"root": folder, "data_folder": str(data_folder)}
            blessed = Run.model_validate(_in_child("train", name="blessed", slowdown=0.0, **given))
            entries = tuple(
                blessed.model_copy(update={"run_id": f"run {number}", "artifact": None})
                for number in range(_BASELINE_RUNS)
            )
            known = {"ledger": Ledger(entries=entries), "settings": PerfConfig().gate}
            slowdown = 0.1 if case == SLOWER_CODE else 0.0
            cpus = frozenset({0}) if case == _ONE_CORE else None
            with _other_work(case):
                trained = _in_child("train", cpus=cpus, name="new", slowdown=slowdown, **given)
                # One core stands for a slower machine of the same kind.
                environment = {"environment": blessed.environment}
                candidate = Run.model_validate(trained).model_copy(update=environment)
                first += not evaluate(candidate, **known).blessed
                began = time.monotonic()
                measured = functools.partial(_measured, candidate, root=folder, cpus=cpus)
                decision = decide(candidate, **known, measure=measured)
            if rerun := decision.ab_rerun:
                seconds.append(time.monotonic() - began)
                ratio = rerun.ratio or rerun.reference_ratio
                ratios.append(ratio.value if ratio else None)
            steps = [item for item in decision.outcomes if item.metric == "step_time_seconds"]
            right += any(item.refuses for item in steps) == (case == SLOWER_CODE)
    return Turns(
        count=rounds, refused_first=first, right=right, ratios=tuple(ratios), seconds=tuple(seconds)
    )


def _measured(
    candidate: Run, runs: Sequence[Run], *, root: str, cpus: frozenset[int] | None
) -> AbRerun:
    pair = [each.model_dump(mode="json") for each in (candidate, *runs[-1:])]
    return AbRerun.model_validate(_in_child("measure", cpus=cpus, root=root, runs=pair))


def _in_child(function: str, *, cpus: frozenset[int] | None = None, **arguments: Any) -> Any:
    log = pathlib.Path(arguments["root"], "children.log")
    with isolate.started(f"{__name__}:{function}", arguments, log_path=log, cpus=cpus) as child:
        return child.result(timeout_seconds=_TIMEOUT_SECONDS)


def train(*, root: str, name: str, slowdown: float, data_folder: str) -> dict[str, Any]:
    """Trains with OptimizedTrainer in `<root>/<name>`; returns the `Run` as JSON values."""
    folder = pathlib.Path(root, name)
    folder.mkdir()
    given = Artifacts(_WORKLOAD, data_folder=data_folder, folder=str(folder))
    # Without trials: another plan would be another reason for another time.
    settings = PerfConfig.from_dict({"training": {"seed": 1, "tuning_seconds": 0}})
    properties = given.properties(steps=_STEPS, clock="", settings=settings.to_json())
    config = {**json.loads(properties["custom_config"]), "slowdown": slowdown}
    properties["custom_config"] = json.dumps(config)
    trainer.Executor().Do(given.inputs, given.outputs, properties)
    metrics = {"perf_metrics": given.outputs["perf_metrics"]}
    return gate.read_run(metrics, settings=settings.gate).model_dump(mode="json")


def measure(*, root: str, runs: list[Any]) -> dict[str, Any]:
    """Measures two runs in turns, as PerfEvaluator does; returns the `AbRerun` as JSON values."""
    candidate, *blessed = map(Run.model_validate, runs)
    logs = pathlib.Path(root, "logs")
    measured = gate.measure(candidate, blessed, settings=PerfConfig().gate, log_folder=logs)
    return measured.model_dump(mode="json")


@contextlib.contextmanager
def _other_work(case: str) -> Iterator[None]:
    if case != _HOG:
        yield
        return
    hog = subprocess.Popen([sys.executable, "-c", _HOG_CODE])
    try:
        yield
    finally:
        hog.kill()
        hog.wait()
