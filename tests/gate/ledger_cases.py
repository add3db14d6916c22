"""Runs with times, acts, and a writer, for the tests of the ledger and its mirror."""

import datetime
import sys

from tfx_perf.gate.ledger import Act, Ledger
from tfx_perf.gate.ledger_store import Mirror
from tfx_perf.gate.run import Run

HERE = {"device_kind": "CPU", "global_batch_size": "64"}
ELSEWHERE = {"device_kind": "A100", "global_batch_size": "64"}
_START = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)


def run(name, minute=0, *, environment=HERE, pipeline="", node="", artifact=None, **figures):
    """Returns a run that the gate saw that many minutes after the first."""
    return Run(
        run_id=name, pipeline=pipeline, node=node, artifact=artifact, time=_time(minute),
        environment=environment, figures=figures,
    )  # fmt: skip


def ledger(*names):
    """Returns a ledger of runs that came one minute after another."""
    return Ledger(entries=tuple(run(name, minute) for minute, name in enumerate(names)))


def act(kind, name, minute, **place):
    """Returns what a person decided about a run."""
    return Act(kind=kind, run_id=name, who="ada", time=_time(minute), reason="because", **place)


def names(runs):
    """Returns the ids of runs."""
    return [run.run_id for run in runs]


def _time(minute):
    return _START + datetime.timedelta(minutes=minute)


def write(uri, writer, count):
    """Adds that many runs one by one, as PerfEvaluator in that many pipeline runs."""
    mirror = Mirror(uri)
    for number in range(count):
        known = mirror.read()
        entry = run(f"{writer}-{number}", number, step_time_seconds=0.01)
        mirror.add(known.append(entry, keep=100))
        mirror.prune(entry, keep=100)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
