"""What a search has cost, in words."""

import pytest

from tfx_perf import payback


@pytest.mark.parametrize(
    ("cost_seconds", "saved_seconds", "planned_runs", "said"),
    [
        (0.0, 1.0, 1, ""),
        (6.0, None, 1, "The trials took 6.00 s."),
        (6.0, -1.0, 1, "The trials took 6.00 s."),
        (6.0, 9.0, 1, "The trials took 6.00 s; this saves about 9.00 s a run."),
        *((6.0, 2.5, planned, "The trials took 6.00 s; this saves about 2.50 s a run, and is paid "
                              "for after 3 runs.") for planned in (None, 3, 30)),
        (6.0, 2.5, 2, "The trials took 6.00 s; this saves about 2.50 s a run, and does not pay "
                      "within the 2 planned runs, but only after 3."),
        (6.0, 2.5, 1, "The trials took 6.00 s; this saves about 2.50 s a run, and does not pay "
                      "within the 1 planned run, but only after 3."),
    ],
)  # fmt: skip
def test_a_sentence_has_what_was_paid_and_what_for(
    cost_seconds, saved_seconds, planned_runs, said
):
    found = payback.in_words(
        "The trials",
        cost_seconds=cost_seconds,
        saved_seconds=saved_seconds,
        planned_runs=planned_runs,
    )
    assert found == said
