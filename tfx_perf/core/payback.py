"""What a search has cost, against what it saves in every run."""

import math

from tfx_perf.core import formatting


def in_words(
    search: str,
    *,
    cost_seconds: float,
    saved_seconds: float | None,
    run_count: int | None,
    is_planned: bool,
) -> str:
    """Returns one sentence; empty where there was no search.

    Args:
        search: that has found what is used, e.g. `The trials`.
        cost_seconds: what it took.
        saved_seconds: about what a run is faster by; None, or no more than 0: nothing.
        run_count: runs that the search was for; None if nobody knows.
        is_planned: whether somebody has said how many; else they are this run and those before.

    Example:
        >>> seconds = {"cost_seconds": 6.0, "saved_seconds": 2.5}
        >>> in_words("The trials", **seconds, run_count=30, is_planned=True)
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
    if run_count is not None and runs > run_count:
        if is_planned:
            within = f"the {formatting.counted(run_count, 'planned run')}"
        else:
            within = "this run" if run_count == 1 else f"the {run_count:,} runs so far"
        return f"{saves}, and does not pay within {within}, but only after {runs:,}."
    return f"{saves}, and is paid for after {runs:,} runs."
