"""Runs for the gate's tests."""

import datetime

import numpy as np

from tfx_perf.config.gate import GateSettings
from tfx_perf.config.rule import Rule
from tfx_perf.gate.ledger import Ledger, Override
from tfx_perf.gate.run import Run

HERE = {"device_kind": "CPU", "global_batch_size": "64"}
ELSEWHERE = {"device_kind": "A100", "global_batch_size": "64"}


_START = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)


def at_minute(minute):
    return _START + datetime.timedelta(minutes=minute)


def run(name, minute=0, *, environment=HERE, evaluation=None, step_times=(), pipeline="", node="",
        artifact=None, **figures):  # fmt: skip
    return Run(
        run_id=name, pipeline=pipeline, node=node, artifact=artifact, time=at_minute(minute),
        environment=environment, figures=figures, evaluation=evaluation or {},
        step_times=step_times,
    )  # fmt: skip


def ledger_of(key, values):
    return Ledger(
        entries=tuple(run(f"r{i}", minute=i, **{key: value}) for i, value in enumerate(values))
    )


def blessed_by_a_person(ledger, candidate):
    """Returns the ledger with a run that the gate had refused and a person has blessed."""
    act = Override(
        kind="bless", run_id=candidate.run_id, who="me", time=candidate.time, reason="meant"
    )
    return ledger.merge(Ledger(entries=(candidate,), acts=(act,)))


def only(**rules):
    """Returns settings with these rules and without the default ones."""
    made = {key: rule if isinstance(rule, Rule) else Rule(**rule) for key, rule in rules.items()}
    return GateSettings(rules=made, use_defaults=False)


def noisy(count, *, sd, seed=0, center=1.0):
    """Returns one figure per run, normally distributed around `center`."""
    return (center * (1 + sd * np.random.default_rng(seed).normal(size=count))).tolist()
