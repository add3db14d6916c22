"""What a search has cost, against what it saves in every run."""

import math

from tfx_perf import formatting


def in_words(
    search: str, *, cost_seconds: float, saved_seconds: float | None, planned_runs: int | None
) -> str:
    """Returns one sentence; empty where there was no search.

    Args:
        search: that has found what is used, e.g. `The trials`.
        cost_seconds: what it took.
        saved_seconds: about what a run is faster by; None, or no more than 0: nothing.
        planned_runs: runs that the search was for; None if nobody knows.

    Example:
        >>> in_words("The trials", cost_seconds=6.0, saved_seconds=2.5, planned_runs=30)
        'The trials took 6.00 s; this saves about 2.50 s a run, and is paid for after 3 runs.'
    """
    if not cost_seconds:
        return ""
    took = f"{search} took {formatting.format_seconds(cost_seconds)}"
    if saved_seconds is None or saved_seconds <= 0:
        return f"{took}."
    saves = f"{took}; this saves about {formatting.format_seconds(saved_seconds)} a run"
    runs = math.ceil(cost_seconds / saved_seconds)
    if runs == 1:
        return f"{saves}."
    if planned_runs is not None and runs > planned_runs:
        planned = formatting.counted(planned_runs, "planned run")
        return f"{saves}, and does not pay within the {planned}, but only after {runs:,}."
    return f"{saves}, and is paid for after {runs:,} runs."
