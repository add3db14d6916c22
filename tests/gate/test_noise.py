"""What a figure's run-to-run deviation is expected to be."""

from tfx_perf import metrics
from tfx_perf.gate import noise, validity
from tfx_perf.metrics import Direction


def test_a_time_that_can_regress_is_known_to_be_taken_once_or_over_the_steps():
    """So a new one needs a line in one of the two sets: else 1 % would be expected of it."""
    times = {
        key
        for key, metric in metrics.CATALOGUE.items()
        if metric.unit == "seconds" and metric.direction is not Direction.NONE
    }
    assert times <= noise._ONCE | validity._PER_STEP


def test_the_sets_name_figures_of_the_catalogue():
    named = noise._ONCE | validity._PER_STEP | metrics._DETERMINISTIC | metrics.OF_MEAN_STEP_TIME
    assert named | set(metrics.STEP_TIME_EXPONENTS) <= set(metrics.CATALOGUE)
