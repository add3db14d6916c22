"""The code in CONTRIBUTING.md does what the page says."""

import json
import pathlib
import re

import pytest

from tests import contributed, processes

_ROOT = pathlib.Path(__file__).parent.parent


def test_the_candidate_keeps_the_defaults_examples(monkeypatch, tmp_path):
    import tensorflow as tf

    from tfx_perf.input import candidates
    from tfx_perf.input.candidates import source
    from tfx_perf.input.candidates.limits import Limits

    path = tmp_path / "records"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(7):
            writer.write(bytes([number]))
    found = source.RecordSource(
        file_patterns=(str(path),),
        default_factory=lambda patterns, options, schema: tf.data.TFRecordDataset(patterns),
        options=None,
    )
    names: dict = {}
    exec(contributed.CANDIDATE, names)  # noqa: S102
    kind = names["WarmStart"]
    monkeypatch.setitem(candidates.CANDIDATES, kind.name, kind)
    candidate = candidates.make("warm_start")
    dataset = candidate.build(found, limits=Limits(memory_bytes=2**20))
    assert dataset.options().experimental_warm_start
    assert list(dataset.as_numpy_iterator()) == [bytes([number]) for number in range(7)]


_USE = """
import gc, json, sys
from tfx_perf.training.speedups import SPEEDUPS

exec(sys.stdin.read())
SPEEDUPS[Uncollected.name] = one = Uncollected()  # before the plan is imported, which reads it
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

class Runner:
    def run(self, iterator, steps):
        if iterator is None:
            raise EOFError
        return gc.isenabled(), steps

base = TrainingPlan(steps_per_execution=5)
(plan,) = one.plans(None, base)
around = one.around(Runner(), plan, None)
found = {"plan": str(plan), "is_off": not PLAIN_FIT.uncollected, "run": around.run("data", 5)}
try:
    around.run(None, 5)
except EOFError:
    found["is_enabled_after_an_error"] = gc.isenabled()
gc.disable()
found["obstacle"] = one.obstacle(None)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def used():
    """What the speedup does, in a process of its own, where it is there before the plan."""
    child = processes.python("-c", _USE, input=contributed.OPTIMIZATION, cwd=_ROOT, timeout=120)
    return json.loads(processes.last_line(child))


def test_the_optimization_is_a_field_of_the_plan_that_it_proposes(used):
    assert used["is_off"]
    assert used["plan"] == "5 steps per execution, uncollected"


def test_the_optimization_keeps_the_collector_off_for_as_long_as_a_call_takes(used):
    assert used["run"] == [False, 5]
    assert used["is_enabled_after_an_error"]
    assert "switched the collector off" in used["obstacle"]


def test_the_table_names_files_that_are_there():
    rows = re.findall(r"^\| an? .*? \| (.*?) \| \d+ \| \d+ \|$", contributed.PAGE, re.MULTILINE)
    assert len(rows) == 9
    for path in re.findall(r"`((?:tfx_perf|docs)/[^`]+)`", " ".join(rows)):
        assert (_ROOT / path).exists(), path
