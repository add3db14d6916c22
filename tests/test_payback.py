"""What a search has cost, in words."""

import pytest

from tfx_perf import payback


@pytest.mark.parametrize(
    ("cost_seconds", "saved_seconds", "said"),
    [
        (0.0, 1.0, ""),
        (6.0, None, "The trials took 6.00 s."),
        (6.0, -1.0, "The trials took 6.00 s."),
        (6.0, 9.0, "The trials took 6.00 s; this saves about 9.00 s a run."),
        (6.0, 2.5, "The trials took 6.00 s; this saves about 2.50 s a run, and is paid for after "
                   "3 runs."),
    ],
)  # fmt: skip
def test_a_sentence_has_what_was_paid_and_what_for(cost_seconds, saved_seconds, said):
    found = payback.in_words(
        "The trials", cost_seconds=cost_seconds, saved_seconds=saved_seconds
    )
    assert found == said
