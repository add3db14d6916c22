"""Runs for the gate's tests."""

import datetime

from tfx_perf.gate.run import Run

HERE = {"device_kind": "CPU", "global_batch_size": "64"}
ELSEWHERE = {"device_kind": "A100", "global_batch_size": "64"}


def run(name, *, environment=HERE, **figures):
    """Returns a run named `name` with the given figures."""
    time = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
    return Run(run_id=name, time=time, environment=environment, figures=figures)
