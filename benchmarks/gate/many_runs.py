"""Times the judging of each run, with thousands of runs in one folder of ledgers."""

import itertools
import pathlib
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.gate import months
from tfx_perf.config.gate import GateSettings
from tfx_perf.gate.ledger_store import LedgerFolder
from tfx_perf.gate.verdict import evaluate


def judge(folder: pathlib.Path, *, count: int, seed: int = 0) -> Iterator[float]:
    """Judges runs of three pipelines, each as PerfEvaluator does, with the ledger on a disk.

    Args:
        folder: of the ledgers; empty.
        count: runs of all pipelines.
        seed: of the noise.

    Yields:
        For each run the seconds for reading the ledger, judging, and entering the run.
    """
    settings = GateSettings()
    world = months.World(noise=0.01, pipelines=3)
    make = months.runs_of(world, np.random.default_rng(seed))
    runs = itertools.chain.from_iterable(map(make, itertools.count()))
    for run in itertools.islice(runs, count):
        began = time.perf_counter()
        known = LedgerFolder(str(folder)).read().last(settings.ledger_size)
        decision = evaluate(run, ledger=known, settings=settings)
        if decision.blessed:
            mirror = LedgerFolder(str(folder))
            mirror.add(known.append(run, keep=settings.ledger_size))
            mirror.prune(run, keep=settings.ledger_size)
        yield time.perf_counter() - began
