"""Ledgers, acts, and a writer, for the tests of the ledger and its mirror."""

import sys

from gate_runs import at_minute, run

from tfx_perf.gate.ledger import Ledger, Override
from tfx_perf.gate.ledger_store import LedgerFolder


def ledger(*names):
    return Ledger(entries=tuple(run(name, minute) for minute, name in enumerate(names)))


def act(kind, name, minute, **place):
    return Override(
        kind=kind, run_id=name, who="ada", time=at_minute(minute), reason="because", **place
    )


def names(runs):
    return [run.run_id for run in runs]


def write(uri, writer, count):
    """Adds that many runs one by one, as PerfEvaluator does in as many pipeline runs."""
    mirror = LedgerFolder(uri)
    for number in range(count):
        known = mirror.read()
        entry = run(f"{writer}-{number}", number, step_time_seconds=0.01)
        mirror.add(known.append(entry, keep=100))
        mirror.prune(entry, keep=100)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
