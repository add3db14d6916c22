"""Reads cases in processes of their own; run as a module by `memory.MemoryChecker`."""

import os
import pathlib
from typing import Any

from tests.fuzzing import forks
from tfx_perf.input import candidates
from tfx_perf.input.candidates import limits
from tfx_perf.tf_internals import datasets

from . import serving
from .cases import Call, Case
from .examples import Split


def _read(request: dict[str, Any]) -> dict[str, Any]:
    """Returns by how much the process grew while a dataset was built and read.

    Before that an example is read, for what TensorFlow takes once and for all.
    """
    case = Case.from_json(request["case"])
    small = Case(candidate=case.base)
    with limits.MemoryMeter() as starting:
        for name in dict.fromkeys(("default", case.base)):
            candidate = candidates.make(name)
            _exhaust(_built(small, Call(shuffle=True), request["small"], candidate))
    del candidate
    candidate = candidates.make(case.candidate)
    with limits.MemoryMeter() as meter, serving.Fallbacks() as reasons:
        dataset = _built(case, case.calls[0], request["split"], candidate)
        rows = _exhaust(dataset)
        held_bytes = meter.settled_growth_bytes()
    return {
        "rows": rows,
        "reasons": reasons,
        "starting_bytes": starting.peak_growth_bytes,
        "held_bytes": held_bytes,
        "peak_bytes": meter.peak_growth_bytes,
        "claimed_bytes": candidate.claimed_bytes,
    }


def _split(case: Case, folder: str) -> Split:
    return Split(case, pathlib.Path(folder))


def _built(case: Case, call: Call, folder: str, candidate: Any) -> Any:
    factory = serving.factory_of(case, candidate)
    return serving.reader(case, call, _split(case, folder), factory=factory).dataset()


def _exhaust(dataset: Any) -> int:
    return sum(int(datasets.row_count(batch)) for batch in dataset)


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):  # what a stream claims goes by the CPUs
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    forks.serve(_read)
