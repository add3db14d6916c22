"""What a search has cost, in words."""

import pytest

from tfx_perf.core import formatting


@pytest.mark.parametrize(
    ("cost_seconds", "saved_seconds", "run_count", "is_planned", "said"),
    [
        (0.0, 1.0, 1, True, ""),
        (6.0, None, 1, True, "The trials took 6.00 s."),
        (6.0, -1.0, 1, True, "The trials took 6.00 s."),
        (6.0, 9.0, 1, True, "The trials took 6.00 s; this saves about 9.00 s a run."),
        *((6.0, 2.5, count, True, "The trials took 6.00 s; this saves about 2.50 s a run, and is "
                                  "paid for after 3 runs.") for count in (None, 3, 30)),
        *((6.0, 2.5, *case, "The trials took 6.00 s; this saves about 2.50 s a run, and does not "
                            f"pay within {within}, but only after 3.")
          for case, within in {
              (2, True): "the 2 planned runs", (1, True): "the 1 planned run",
              (2, False): "the 2 runs so far", (1, False): "this run",
          }.items()),
    ],
)  # fmt: skip
def test_a_sentence_has_what_was_paid_and_what_for(
    cost_seconds, saved_seconds, run_count, is_planned, said
):
    found = formatting.in_words(
        "The trials",
        cost_seconds=cost_seconds,
        saved_seconds=saved_seconds,
        run_count=run_count,
        is_planned=is_planned,
    )
    assert found == said
