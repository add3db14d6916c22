"""What is made of plain `fit` in turns with itself in other ways (`plain_turns`)."""

import pytest

from tfx_perf.components.optimized_trainer import plain_turns
from tfx_perf.components.training_job import in_turns
from tfx_perf.settings.training import TrainingSettings
from tfx_perf.training.plan import TrainingPlan

WITH = TrainingPlan(onednn=True)


def judged(*, off, on, losses=(([1.0], [1.0]), [1.0])):
    first, second = losses
    return plain_turns._judged(
        WITH,
        in_turns.Trained([on] * 9, 9.0, [second]),
        without=in_turns.Trained([off] * 9, 9.0, list(first)),
        settings=TrainingSettings(),
    )


def test_it_must_be_faster_and_reach_the_same_loss():
    faster = judged(off=0.12, on=0.10)
    assert (faster.plan, faster.status) == (WITH, "chosen")
    assert faster.speedup.value == pytest.approx(1.2)
    assert judged(off=0.101, on=0.10).status == "slower"  # within the margin of 2 %
    different = judged(off=0.2, on=0.1, losses=(([1.0], [1.0]), [1.1]))
    assert different.status == "different"
    assert "differs by 10.0%" in different.reason
    nan = judged(off=0.2, on=0.1, losses=(([1.0], [1.0]), [float("nan")]))
    assert nan.status == "different"
    # What the training differs from itself by does not count.
    assert judged(off=0.2, on=0.1, losses=(([1.0], [1.06]), [1.1])).status == "chosen"
    assert judged(off=0.2, on=0.1, losses=(([0.0], [0.0]), [0.0])).status == "chosen"


def test_the_loss_after_each_pass_counts():
    first = [1.0, 0.5, 0.25]
    for found in ([1.0, 0.5, 0.3], [1.0, 0.6, 0.25], [1.0, float("nan"), 0.25]):
        losses = (first, first), found
        assert judged(off=0.2, on=0.1, losses=losses).status == "different"
    losses = (first, first), [1.001, 0.501, 0.2501]
    assert judged(off=0.2, on=0.1, losses=losses).status == "chosen"


def test_of_several_that_are_good_enough_the_fastest_is_chosen():
    good, better = judged(off=0.2, on=0.15), judged(off=0.2, on=0.1)
    slower = judged(off=0.1, on=0.2)
    found = plain_turns._with_one_winner([good, better, slower])
    assert [each.status for each in found] == ["slower", "chosen", "slower"]
    assert plain_turns._with_one_winner([slower]) == (slower,)


def test_turns_end_when_no_further_one_would_change_the_outcome():
    uneven = [1.0, 1.5, 0.7] * 3
    is_settled = in_turns.settled_at(0.02)
    assert is_settled([[1.2] * 9, [1.0] * 9])
    assert is_settled([[1.0] * 9, [1.2] * 9])
    assert not is_settled([uneven, [1.0] * 9])
