"""The memory of a training does not depend on what its process did before."""

import datetime
import json

import memory_in_process
import pytest

from tests import processes
from tfx_perf.config import gate as gate_settings
from tfx_perf.config.gate import GateSettings
from tfx_perf.core import metrics
from tfx_perf.gate.decision import Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run
from tfx_perf.gate.verdict import evaluate

pytestmark = pytest.mark.slow  # each process takes twenty seconds

KEY = "training_memory_bytes"
WIDTH = 1500  # 55 MB of weights and slots, and as much again while a step runs


def figures_of(package, *, before="nothing", width=WIDTH):
    child = processes.python(memory_in_process.__file__, package, before, str(width))
    return metrics.checked(json.loads(processes.last_line(child)))


def verdict_on(figures, *, blessed):
    """Returns what the default rule says of a training after another one."""
    rules = {KEY: gate_settings.DEFAULT_RULES[KEY]}
    old, new = (
        Run(
            run_id=str(day),
            time=datetime.datetime(2026, 1, day, tzinfo=datetime.timezone.utc),
            environment={},
            figures=each,
        )
        for day, each in enumerate((blessed, figures), start=1)
    )
    (outcome,) = evaluate(
        new,
        ledger=Ledger(entries=(old,)),
        settings=GateSettings(use_defaults=False, rules=rules),
    ).outcomes
    return outcome.verdict


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def package(request):
    return request.param


@pytest.fixture(scope="module")
def alone(package):
    return figures_of(package)


@pytest.mark.parametrize("before", ["ballast", "other trainings", "freed"])
def test_it_is_the_same_after_other_work(package, alone, before):
    # The margin alone decides: the same step takes up to 70 MB more in another process, by the
    # order in which TensorFlow's threads run its operations. What came before is 300 MB or more.
    after = figures_of(package, before=before)
    assert verdict_on(after, blessed=alone) is Verdict.PASS
    assert verdict_on(alone, blessed=after) is Verdict.PASS
    if before == "ballast":  # which the whole process's peak has in it
        assert after["peak_rss_bytes"] > alone["peak_rss_bytes"] + 250 * 2**20


def test_a_model_that_takes_more_is_refused(package, alone):
    large = figures_of(package, width=3500)
    variables = [4 * 3 * (2 * width**2) for width in (WIDTH, 3500)]  # weights and Adam's slots
    assert large[KEY] - alone[KEY] > variables[1] - variables[0]
    assert verdict_on(large, blessed=alone) is Verdict.REGRESSION
