"""What other plans than the chosen one have left in memory is known beside its own."""

import numpy as np
import pytest

from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.leftovers import Leftovers

MEBIBYTE = 2**20
NEARLY = 24 * MEBIBYTE  # what else may come and go


def test_each_plan_is_spared_what_it_has_left_itself():
    leftovers = Leftovers()
    xla = [TrainingPlan(steps_per_call=steps, xla=True) for steps in (1, 5)]
    with leftovers.of([PLAIN_FIT]):
        of_plain = np.ones(64 * MEBIBYTE, np.uint8)
    with leftovers.of(xla):
        of_xla = np.ones(192 * MEBIBYTE, np.uint8)
    assert leftovers.beside(PLAIN_FIT) == pytest.approx(of_xla.nbytes, abs=NEARLY)
    for steps in (1, 5, 50):  # which share one traced function
        plan = TrainingPlan(steps_per_call=steps, xla=True)
        assert leftovers.beside(plan) == pytest.approx(of_plain.nbytes, abs=NEARLY)
    del of_plain, of_xla
    assert leftovers.beside(PLAIN_FIT) == 0
